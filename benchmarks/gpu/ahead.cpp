// Seconds from the arrays' being read to the end of the first run of ahead.dag, and of a later run. ahead.py compiles it in the
// folder of the emitted program.
//
//   ./ahead DATA
#include <cstdio>

#include "dagc/options.hpp"
#include "iteration.hpp"

int main(int argc, char** argv) {
  dagc::Mpi mpi(&argc, &argv);
  dagc::take_gpu(mpi.rank(), MPI_COMM_WORLD);
  Program p;
  p.load(argv[1], MPI_COMM_WORLD, iteration_streams, iteration_events);
  double seconds[2];
  for (double& each : seconds) {
    each = -dagc::seconds_now();
    iteration(p);
    DAGC_CUDA(cudaDeviceSynchronize());
    each += dagc::seconds_now();
  }
  std::printf("%.9f %.9f %d\n", seconds[0] + p.start_seconds, seconds[1], p.sites[0].answer);
}
