// Host target: Thrust, by its own headers for programs without CUDA, those of the CUDA toolkit. Included before the first
// of them. Its algorithms run at once on the thread that calls them, so from here on the operations of streams do, too.
#pragma once

#if defined(DAGC_RECORDS)  // its calls would be in no log
#error "Thrust is not recorded"
#elif !__has_include(<thrust/execution_policy.h>)
#error "Thrust is not on the host target without the headers of a CUDA toolkit (nvcc on the PATH, CUDA_HOME)"
#else

#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define CCCL_DISABLE_FP16_SUPPORT  // the types of host_half.hpp are others
#define CCCL_DISABLE_BF16_SUPPORT

#include <thrust/execution_policy.h>
#include <thrust/system/cpp/execution_policy.h>

#include "host_cuda.hpp"

namespace dagc::host {
inline const bool thrust_is_used = at_once = true;
}

THRUST_NAMESPACE_BEGIN
namespace cuda {
struct HostPolicy : thrust::system::cpp::detail::par_t {
  HostPolicy on(cudaStream_t) const { return {}; }  // what was issued is done
};
inline constexpr HostPolicy par{}, par_nosync{};
}  // namespace cuda
THRUST_NAMESPACE_END

#endif
