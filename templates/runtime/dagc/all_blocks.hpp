// Where all blocks of a kernel wait for each other. Apart from one_kernel.hpp, which every program includes: the header of
// cooperative groups has those of all small types of numbers and a third of what the compiler reads.
#pragma once

#include "dagc/target.hpp"

#if DAGC_TARGET_CUDA
#include <cooperative_groups.h>
#endif

namespace dagc {

DAGC_KERNELS_BEGIN

// All blocks of the kernel are here, and see what the others have written. On the host target it has one.
__device__ inline void wait_for_all_blocks() {
#if DAGC_TARGET_CUDA
  cooperative_groups::this_grid().sync();
#else
  __syncthreads();
#endif
}

DAGC_KERNELS_END

}  // namespace dagc
