// failures HOW: ends as HOW says. `ranks` does nothing wrong.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "dagc/connecting.hpp"
#include "dagc/message.hpp"

// A call of CUDA's that fails.
const cudaError_t broken = cudaErrorMemoryAllocation;
cudaError_t call(cudaError_t s) { return s; }

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "before") dagc::fail(2, "before MPI");
  {
    dagc::Mpi mpi(&argc, &argv);
    const bool last = mpi.rank() == mpi.ranks() - 1;
    DAGC_CUDA(call(cudaSuccess));
    if (how == "mpi" && last) {
      int value = 0;
      DAGC_MPI(MPI_Send(&value, 1, MPI_INT, mpi.ranks(), 0, MPI_COMM_WORLD));
    }
    if (how == "cuda" && last) DAGC_CUDA(call(broken));
    if (how == "wrong" && last) dagc::fail(dagc::exit_wrong_result, "y is wrong");
    if (how == "thread" && last) std::thread([] { dagc::fail(dagc::exit_missing, "no GPU"); }).join();
    if (how == "segv" && last) std::thread([] { *static_cast<volatile int*>(nullptr) = 1; }).join();
    if (how == "connect") {
      { const dagc::Connecting limit(MPI_COMM_WORLD, "NCCL", 60); }  // it may take so long, and does not
      const dagc::Connecting limit(MPI_COMM_WORLD, "NCCL", last ? 0.2 : 0.0);
      DAGC_MPI(MPI_Barrier(MPI_COMM_WORLD));
      if (last) std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    if (how == "abort" && last) std::abort();
    if (how == "kill" && last) std::raise(SIGKILL);
    // The others wait for the last one: they must be ended too.
    DAGC_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (how == "ranks") {
      const dagc::LocalRank local = dagc::local_rank();
      std::printf("%d %d %d\n", mpi.rank(), local.rank, local.ranks);
    }
  }
  if (how == "after") dagc::fail(5, "after MPI");
}
