// Kernels that themselves wait for what they depend on, and so may be launched before that has ended (programmatic.hpp).
#pragma once

#include <algorithm>
#include <vector>

#include "dagc/target.hpp"

namespace dagc {

// The first statement of a kernel. Without programmatic edges it does nothing.
__device__ inline void wait_for_dependencies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Dependents are launched, and wait, once all blocks of this kernel have called this or have ended.
__device__ inline void let_dependents_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The kernels of this process that begin with `wait_for_dependencies`.
class WaitingKernels {
 public:
  template <class... Kernels>
  explicit WaitingKernels(Kernels*... kernels) {
    (all().push_back(reinterpret_cast<const void*>(kernels)), ...);
  }
  static bool has(const void* kernel) { return std::find(all().begin(), all().end(), kernel) != all().end(); }
  // Of a transport, whose kernels wait in every program: where kernels of the program do.
  template <class Kernel>
  static bool also(Kernel* kernel) {
    if (any() && !has(reinterpret_cast<const void*>(kernel))) all().push_back(reinterpret_cast<const void*>(kernel));
    return any();
  }
  static bool any() { return !all().empty(); }

 private:
  static std::vector<const void*>& all() {
    static std::vector<const void*> kernels;
    return kernels;
  }
};

}  // namespace dagc
