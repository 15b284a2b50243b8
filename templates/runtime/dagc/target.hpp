// The target of the emitted code: CUDA if compiled by nvcc, this machine's CPU if compiled by g++.
//
// A program for CUDA may be two sources that are compiled side by side: one by nvcc, with the kernels and the functions that
// launch them, which defines DAGC_KERNELS_APART before it includes any header, and the rest by g++, which defines it as well.
// DAGC_HAS_KERNELS: whether this source has kernels. DAGC_LAUNCHER: before functions that launch them, which are declared in
// both, and defined by that with the kernels.
#pragma once

#if defined(__CUDACC__) || defined(DAGC_KERNELS_APART)

#include <cuda_runtime.h>

#include <cstddef>

#if defined(__CUDACC__)
#define DAGC_HAS_KERNELS 1
#else
#define DAGC_HAS_KERNELS 0
#endif
#if defined(DAGC_KERNELS_APART)
#define DAGC_LAUNCHER
#else
#define DAGC_LAUNCHER inline
#endif
#define DAGC_TARGET_CUDA 1
#define DAGC_TARGET_HOST 0
#define DAGC_TARGET_NAME "cuda"
#define DAGC_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define DAGC_KERNELS_BEGIN
#define DAGC_KERNELS_END

namespace dagc {

// More than 48 KiB of dynamic shared memory must be requested. DAGC_LAUNCHED reports what the GPU refuses.
template <class Kernel>
void allow_shared(Kernel* kernel, std::size_t bytes) {
  if (bytes > 48 * 1024)
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <class T>
struct SameType {
  using type = T;
};

// kernel<<<grid, block, shared, stream>>>(arguments...) as a call, for the compilers of both targets.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream,
            typename SameType<Parameters>::type... arguments)
#if DAGC_HAS_KERNELS
{
  allow_shared(kernel, shared);
  kernel<<<grid, block, shared, stream>>>(arguments...);
}
#else
    = delete;
#endif

}  // namespace dagc

#else

#include "host_cuda.hpp"

namespace dagc {
template <class T>
using SameType = host::Same<T>;
}

#define DAGC_HAS_KERNELS 1
#define DAGC_LAUNCHER inline
#define DAGC_TARGET_CUDA 0
#define DAGC_TARGET_HOST 1
#define DAGC_TARGET_NAME "host"
// Around kernels: nvcc does not pass device code to the host compiler, so these warnings never occur there
// (`threadIdx.x < d` with an int d is usual and right).
#define DAGC_KERNELS_BEGIN                                                                                             \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wsign-compare\"")                                  \
      _Pragma("GCC diagnostic ignored \"-Wunused-variable\"") _Pragma("GCC diagnostic ignored \"-Wunused-parameter\"") \
          _Pragma("GCC diagnostic ignored \"-Wunused-but-set-variable\"")
#define DAGC_KERNELS_END _Pragma("GCC diagnostic pop")

#endif

#if DAGC_HAS_KERNELS
namespace dagc {

// The number of a thread in its block of any shape, and how many there are.
__device__ inline unsigned int thread_in_block() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
__device__ inline unsigned int threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }

}  // namespace dagc
#endif
