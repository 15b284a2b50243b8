// What a bad placement of a rank costs, measured where there is one (binding.hpp): copies to the GPU from cores of another node
// beside those from cores of its own, and work of ranks that share cores, or threads of cores, beside that of each alone.
#pragma once

#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Bytes a second of copies from page-locked memory to the GPU; how many times as long a rank takes beside the others as alone.
// 0: not measured.
struct BindingCost {
  double copies = 0, copies_near = 0, beside = 0;
};

namespace binding_cost {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline bool run_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

// The fastest of several copies of 4 MiB, from memory that this thread writes first. 0 where there is not enough of it.
inline double bytes_per_second() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void *host = nullptr, *device = nullptr;
  double best = 0;
  if (cudaMalloc(&device, kBytes) == cudaSuccess && cudaMallocHost(&host, kBytes) == cudaSuccess) {
    std::memset(host, 1, kBytes);
    for (int i = 0; i < 8; ++i) {
      const double begin = now();
      if (cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) break;
      best = std::max(best, static_cast<double>(kBytes) / (now() - begin));
    }
  }
  cudaFreeHost(host);
  cudaFree(device);
  cudaGetLastError();
  return best;
}

// On the cores of this rank, and on those near the GPU, if it may use them.
inline void copies(const std::vector<int>& cores, const std::vector<int>& near, BindingCost* out) {
  out->copies = bytes_per_second();
  if (run_on(near)) out->copies_near = bytes_per_second();
  run_on(cores);
}

// Steps a second of work that needs no memory, in so many seconds.
inline double speed(double seconds) {
  volatile double x = 1;
  std::int64_t steps = 0;
  double took = 0;
  for (const double begin = now(); took < seconds; took = now() - begin, ++steps)
    for (int i = 0; i < 10000; ++i) x = x * 1.0000001 + 1e-9;
  return static_cast<double>(steps) / took;
}

// A barrier in which ranks that wait leave their cores to the others.
inline void wait_asleep(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  DAGC_MPI(MPI_Ibarrier(comm, &request));
  const timespec pause{0, 200000};
  for (int done = 0; !done; nanosleep(&pause, nullptr)) DAGC_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
}

// Collective over `comm`. `local`: the place of this rank on its host; `most`: the largest number of ranks of a host.
inline double beside(MPI_Comm comm, int local, int most) {
  double alone = 0;
  for (int turn = 0; turn < most; ++turn) {
    if (turn == local) alone = speed(0.02);
    wait_asleep(comm);
  }
  return alone / speed(0.05);
}

}  // namespace binding_cost
}  // namespace dagc
