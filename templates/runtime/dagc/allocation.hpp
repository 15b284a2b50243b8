// The allocation that an address on the GPU belongs to.
#pragma once

#include <cstddef>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

struct Allocation {
  const char* base;
  std::size_t bytes;  // 0: not known
};

// By the driver, which the runtime finds: nothing more is linked. An address that the driver does not know is its own
// allocation, of unknown size.
inline Allocation allocation_of(const void* address) {
#if DAGC_TARGET_CUDA
  using Range = int (*)(unsigned long long*, std::size_t*, unsigned long long);
  static const Range range = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 13000
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault, &how);
#else
    const cudaError_t status = cudaGetDriverEntryPoint("cuMemGetAddressRange", &found, cudaEnableDefault, &how);
#endif
    return status == cudaSuccess && how == cudaDriverEntryPointSuccess ? reinterpret_cast<Range>(found) : nullptr;
  }();
  unsigned long long base = 0;
  std::size_t bytes = 0;
  if (range != nullptr && range(&base, &bytes, reinterpret_cast<unsigned long long>(address)) == 0)
    return {reinterpret_cast<const char*>(base), bytes};
#endif
  return {static_cast<const char*>(address), 0};
}

}  // namespace dagc
