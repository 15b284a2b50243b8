// Kernels that cannot go on. Each ends the process with code 5 and a line that says why.
#include "check.hpp"
#include "dagc/target.hpp"

// Named in the message where the program exports its symbols (-rdynamic, or a shared library).
extern "C" __global__ void half_a_barrier();

extern "C" __global__ void half_a_barrier() {  // threads that wait for each other at different things
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncwarp();
}

namespace {

__global__ void absent_lanes() {
  if (threadIdx.x % 2)
    __shfl_sync(~0u, 1, 0);
  else
    __syncthreads();
}
__global__ void different_functions() {
  if (threadIdx.x % 2)
    __ballot_sync(~0u, 1);
  else
    __shfl_sync(~0u, 1, 0);
}
__global__ void not_named() { __syncwarp(1u << ((threadIdx.x + 1) % 32)); }
__global__ void different_masks() { __syncwarp(threadIdx.x < 16 ? 0x1ffffu : 0xffff8000u); }
__global__ void trap() { __trap(); }

template <class Kernel>
void run(Kernel kernel) {
  dagc::launch(kernel, 2, 32, 0, nullptr);
  GOOD(cudaDeviceSynchronize());
}

constexpr Case kCases[] = {
    {"half_a_barrier", [] { run(half_a_barrier); }},
    {"absent_lanes", [] { run(absent_lanes); }},
    {"different_functions", [] { run(different_functions); }},
    {"not_named", [] { run(not_named); }},
    {"different_masks", [] { run(different_masks); }},
    {"trap", [] { run(trap); }},
    {"outside", [] { __syncthreads(); }},
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
