// Sums and maxima over the elements of arrays, computed where the arrays are.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Page-locked memory and a stream, through which a thread beside the program copies to the host: other threads that use the GPU
// would wait for a copy to memory that is not page-locked.
struct Staging {
  char* buffer = nullptr;
  std::size_t bytes = 0;
  cudaStream_t stream = nullptr;
};

// This thread's; none: plain copies.
inline Staging*& staging() {
  thread_local Staging* mine = nullptr;
  return mine;
}

namespace detail {

struct Sum {
  static constexpr double none = 0;
  __host__ __device__ static double of(double a, double b) { return a + b; }
};

struct Most {
  static constexpr double none = -std::numeric_limits<double>::infinity();
  __host__ __device__ static double of(double a, double b) { return b > a || b != b ? b : a; }  // NaN if any is
};

#if DAGC_TARGET_CUDA

constexpr int kReducing = 256;  // threads of a block
constexpr int kParts = 1024;    // blocks, at most

// Always in the same order, so that a sum has the same rounding errors in every run.
template <class Reduction, class T, class F>
__global__ void reduce(const T* elements, std::int64_t count, F f, double* parts) {
  __shared__ double of_thread[kReducing];
  const int thread = static_cast<int>(threadIdx.x);
  double mine = Reduction::none;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kReducing + thread; i < count; i += std::int64_t{gridDim.x} * kReducing)
    mine = Reduction::of(mine, static_cast<double>(f(elements, i)));
  of_thread[thread] = mine;
  for (int step = kReducing / 2; step > 0; step /= 2) {
    __syncthreads();
    if (thread < step) of_thread[thread] = Reduction::of(of_thread[thread], of_thread[thread + step]);
  }
  if (thread == 0) parts[blockIdx.x] = of_thread[0];
}

template <class Reduction, class T, class F>
std::vector<double> parts_on_device(const T* elements, std::int64_t count, F f) {
  const std::int64_t wanted = (count + kReducing - 1) / kReducing;
  const unsigned blocks = static_cast<unsigned>(wanted < kParts ? wanted : kParts);
  std::vector<double> parts(blocks);
  const std::size_t bytes = blocks * sizeof(double);
  const Staging* const through = staging();
  if (through != nullptr && bytes <= through->bytes) {  // the GPU writes to page-locked memory
    double* const to = reinterpret_cast<double*>(through->buffer);
    reduce<Reduction><<<blocks, kReducing, 0, through->stream>>>(elements, count, f, to);
    DAGC_CUDA(cudaGetLastError());
    DAGC_CUDA(cudaStreamSynchronize(through->stream));
    parts.assign(to, to + blocks);
    return parts;
  }
  double* to = nullptr;
  DAGC_CUDA(cudaMalloc(&to, bytes));
  reduce<Reduction><<<blocks, kReducing>>>(elements, count, f, to);
  DAGC_CUDA(cudaGetLastError());
  DAGC_CUDA(cudaMemcpy(parts.data(), to, bytes, cudaMemcpyDefault));
  DAGC_CUDA(cudaFree(to));
  return parts;
}

inline bool on_device(const void* memory) {
  cudaPointerAttributes at{};
  DAGC_CUDA(cudaPointerGetAttributes(&at, memory));
  return at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged;
}

#endif

// f(elements, i) of i = 0 .. count - 1; 0 for none. In device memory on the GPU, else on the host.
template <class Reduction, class T, class F>
double reduced(const T* elements, std::int64_t count, F f) {
  if (count <= 0) return 0;
  double all = Reduction::none;
#if DAGC_TARGET_CUDA
  if (on_device(elements)) {
    for (const double part : parts_on_device<Reduction>(elements, count, f)) all = Reduction::of(all, part);
    return all;
  }
#endif
  for (std::int64_t i = 0; i < count; ++i) all = Reduction::of(all, static_cast<double>(f(elements, i)));
  return all;
}

}  // namespace detail

}  // namespace dagc
