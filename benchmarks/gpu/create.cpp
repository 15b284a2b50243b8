// Milliseconds of create, rebind and destroy of a library of ring.dag; with APP_NCCL also of ncclCommInitRank alone, and of create
// on the communicator that it has made. create.py compiles it, and reads what it prints.
//
//   mpiexec -n RANKS ./create TURNS alone|create      which of the two is the first that needs NCCL in this process
#include <algorithm>
#include <cstring>

#include "own.hpp"
#include "ring.hpp"
#ifdef APP_NCCL
#include <nccl.h>
#endif

namespace {

int rank = 0, ranks = 1;

// Of the slowest rank.
template <class Work>
void timed(const char* what, int turn, Work work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  work();
  const double mine = 1e3 * (MPI_Wtime() - start);
  double slowest = 0;
  MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s,%d,%.3f\n", what, turn, slowest);
}

struct Data {
  Own<std::int8_t> sent{std::vector<std::int8_t>(1024, 1)}, received{std::vector<std::int8_t>(1024)};
  ring::Sizes sizes{1024, (rank + 1) % ranks, (rank + ranks - 1) % ranks};

  ring::Arrays arrays() { return {{sent.data(), sent.size()}, {received.data(), received.size()}}; }
};

void library(Data& data, int turn, void* nccl) {
  ring::Options options{};
  const char* names[] = {"create", "rebind", "destroy"};
  const char* with_nccl[] = {"create on nccl_comm", "rebind on nccl_comm", "destroy on nccl_comm"};
  const char** of = nccl == nullptr ? names : with_nccl;
#ifdef APP_NCCL
  options.nccl_comm = nccl;
#endif
  ring::Instance* made = nullptr;
  timed(of[0], turn, [&] { made = new ring::Instance(MPI_COMM_WORLD, data.sizes, data.arrays(), options); });
  made->run(3);
  timed(of[1], turn, [&] { made->rebind(data.sizes, data.arrays()); });
  made->run(3);
  timed(of[2], turn, [&] { delete made; });
}

#ifdef APP_NCCL
void communicator(Data& data, int turn) {
  ncclComm_t made = nullptr;
  timed("ncclCommInitRank", turn, [&] {
    ncclUniqueId id;
    if (rank == 0) ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (ncclCommInitRank(&made, ranks, id, rank) != ncclSuccess) std::exit(5);
  });
  library(data, turn, made);
  timed("ncclCommDestroy", turn, [&] { ncclCommDestroy(made); });
}
#else
void communicator(Data&, int) {}
#endif

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int turns = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  const bool alone = argc > 2 && std::strcmp(argv[2], "alone") == 0;
  take_gpu(rank);
  timed("CUDA", 0, [] {
#ifdef APP_CUDA
    cuda(cudaFree(nullptr));  // the context
#endif
  });
  int failed = 0;
  try {
    Data data;
    for (int turn = 0; turn < turns; ++turn) {
      if (alone) communicator(data, turn);
      library(data, turn, nullptr);
      if (!alone) communicator(data, turn);
    }
    failed = data.received.values() != data.sent.values();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    failed = 1;
  }
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
