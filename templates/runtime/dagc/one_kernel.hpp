// Iterations that one kernel repeats: its blocks do the blocks of each op, and wait for each other between ops.
//
//   __global__ void iterations(dagc::LoopState* state, dagc::LoopTest<double, double> test, dagc::OpGrids<2> of, double* x) {
//     dagc::Iterations<double, double> iterations(state, test);
//     do {
//       dagc::each_block<add>(of.op[0], x);  // __device__ void add(uint3 block, dim3 grid, uint3 thread, dim3 threads, double* x)
//       dagc::wait_for_all_blocks();  // all_blocks.hpp
//       ...
//       dagc::wait_for_all_blocks();
//     } while (iterations.another());
//   }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "dagc/check.hpp"
#include "dagc/loop_test.hpp"
#include "dagc/target.hpp"

namespace dagc {

// The grid and the block of an op. `meets`: its threads meet, or share memory, so that a block of the kernel needs as many;
// `shaped`: it needs them in the same shape.
struct OpGrid {
  dim3 blocks, threads;
  bool meets, shaped;
};

template <std::size_t N>
struct OpGrids {
  OpGrid op[N];
};

inline __host__ __device__ std::uint64_t volume(dim3 of) { return std::uint64_t{of.x} * of.y * of.z; }

#if DAGC_HAS_KERNELS
DAGC_KERNELS_BEGIN

// Those blocks of an op that are this block's, with the thread and the block in the shape of the op's. `shares`: they have
// shared memory.
template <auto block, bool shares = false, class... Arguments>
__device__ void each_block(const OpGrid& of, Arguments... arguments) {
  const unsigned int me = thread_in_block(), threads = static_cast<unsigned int>(volume(of.threads));
  const unsigned int blocks = static_cast<unsigned int>(volume(of.blocks));
  const bool alike = of.threads.x == blockDim.x && of.threads.y == blockDim.y;
  const uint3 lane = alike ? uint3{threadIdx.x, threadIdx.y, threadIdx.z}
                           : uint3{me % of.threads.x, me / of.threads.x % of.threads.y, me / of.threads.x / of.threads.y};
  for (unsigned int k = blockIdx.x; k < blocks; k += gridDim.x) {
    if (shares) __syncthreads();  // the threads have left the block before
    const uint3 tile = of.blocks.y == 1 && of.blocks.z == 1
                           ? uint3{k, 0, 0}
                           : uint3{k % of.blocks.x, k / of.blocks.x % of.blocks.y, k / of.blocks.x / of.blocks.y};
    if (me < threads) block(tile, of.blocks, lane, of.threads, arguments...);
  }
}

// All threads of the kernel copy, each every so many words.
template <class T>
__device__ void copy_together(T* to, const T* from, std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads_of_block();
  const std::int64_t first = std::int64_t{blockIdx.x} * threads_of_block() + thread_in_block();
  for (std::int64_t i = first; i < count; i += stride) to[i] = from[i];
}

// Counts and tests, in each thread alike.
template <class T, class Bound>
class Iterations {
 public:
  __device__ Iterations(LoopState* state, const LoopTest<T, Bound>& test)
      : state_(state), test_(test), first_(state->left), left_(first_), stops_(state->stops != 0) {}

  // How many have ended.
  __device__ std::int64_t done() const { return first_ - left_; }

  // After all blocks have done an iteration.
  __device__ bool another() {
    const Bound v = test_.seen();
    const bool ended = test_.holds(v), more = --left_ > 0 && !(ended && stops_);
    if (!more && blockIdx.x == 0 && thread_in_block() == 0) {
      state_->left = left_;
      state_->ended = ended;
      state_->value = static_cast<double>(v);
    }
    return more;
  }

 private:
  LoopState* state_;
  const LoopTest<T, Bound>& test_;
  std::int64_t first_, left_;
  bool stops_;
};

DAGC_KERNELS_END
#endif

// How many blocks run at once of how many threads; or why the ops cannot be done by one kernel.
struct Together {
  unsigned int blocks = 0;
  dim3 threads;
  std::string why;
};

// `sharing`: the number of ranks whose kernels wait for each other on one GPU.
template <class Kernel, std::size_t N>
Together together(Kernel* kernel, const OpGrids<N>& of, int sharing) {
  Together out;
  std::uint64_t most = 1;
  out.threads = of.op[0].threads;
  for (const OpGrid& op : of.op) {
    most = std::max(most, volume(op.blocks));
    if (volume(op.threads) > volume(out.threads)) out.threads = op.threads;
  }
  for (const OpGrid& op : of.op)
    if (op.shaped && volume(op.threads) == volume(out.threads)) out.threads = op.threads;
  for (const OpGrid& op : of.op) {
    const bool same = op.threads.x == out.threads.x && op.threads.y == out.threads.y && op.threads.z == out.threads.z;
    if (op.meets && volume(op.threads) != volume(out.threads))
      out.why = "blocks of its ops have different numbers of threads, which meet";
    else if (op.shaped && !same)
      out.why = "blocks of its ops have different shapes, and what they call asks for the place of a thread";
    if (volume(op.blocks) > 0x7fffffff) out.why = "an op has more blocks than 31 bits count";
  }
  if (!out.why.empty()) return out;
  int each = 0, device = 0, processors = 1, able = 1;
#if DAGC_TARGET_CUDA
  DAGC_CUDA(cudaGetDevice(&device));
  DAGC_CUDA(cudaDeviceGetAttribute(&able, cudaDevAttrCooperativeLaunch, device));
  DAGC_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const int threads = static_cast<int>(volume(out.threads));
  const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0);
  if (status != cudaSuccess || each == 0) static_cast<void>(cudaGetLastError());
#else
  static_cast<void>(kernel), static_cast<void>(device);
  each = 1;
#endif
  if (able == 0) out.why = "blocks of a kernel cannot wait for each other on this GPU";
  const std::uint64_t room = static_cast<std::uint64_t>(each) * static_cast<std::uint64_t>(processors) / static_cast<std::uint64_t>(sharing);
  if (room == 0) out.why = "no block of it has room on a multiprocessor";
  out.blocks = static_cast<unsigned int>(std::min(most, room));
  return out;
}

// kernel<<<blocks, threads, 0, stream>>>(arguments...), whose blocks run at once.
template <class... Parameters>
void launch_together(void (*kernel)(Parameters...), unsigned int blocks, dim3 threads, cudaStream_t stream, Parameters... arguments) {
#if DAGC_TARGET_CUDA
  void* given[] = {&arguments...};
  DAGC_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), threads, given, 0, stream));
#else
  launch(kernel, dim3(blocks), threads, 0, stream, arguments...);
  DAGC_CUDA(cudaGetLastError());
#endif
}

}  // namespace dagc
