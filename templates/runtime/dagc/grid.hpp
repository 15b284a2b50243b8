// Launch geometry from 64-bit sizes.
#pragma once

#include <cstdint>
#include <string>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

// A grid may have 2^31 - 1 blocks in x and 65535 in y and z. A negative size is an error, 0 means no launch.
inline dim3 grid(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  if (x < 0 || y < 0 || z < 0 || x > 0x7fffffff || y > 0xffff || z > 0xffff)
    fail(exit_run_failed, "a grid of " + std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z) +
                              " blocks cannot be launched");
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

inline bool any(const dim3& grid) { return grid.x && grid.y && grid.z; }

}  // namespace dagc

// Launches return no status. Builds with DAGC_CHECK query it after each launch, to name the op; all
// builds query it once after the checked run.
#ifdef DAGC_CHECK
#define DAGC_LAUNCHED(op)                                                                                       \
  do {                                                                                                          \
    const auto dagc_status = cudaGetLastError();                                                                \
    if (dagc_status != cudaSuccess)                                                                             \
      ::dagc::fail(::dagc::exit_run_failed, std::string(op) + ": launch failed: " + cudaGetErrorString(dagc_status)); \
  } while (0)
#else
#define DAGC_LAUNCHED(op) static_cast<void>(0)
#endif
