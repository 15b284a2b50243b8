// Integer arithmetic as the language defines it, for host and device code.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define DAGC_HOST_DEVICE __host__ __device__
#else
#define DAGC_HOST_DEVICE
#endif

namespace dagc {

// -a, or a if that overflows: the one quotient that overflows, on which a processor's division may trap.
DAGC_HOST_DEVICE constexpr std::int64_t wrapped_negative(std::int64_t a) {
  return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a));
}

// floor(a / b), rounding to minus infinity for all signs. b must not be 0.
DAGC_HOST_DEVICE constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == -1) return wrapped_negative(a);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

// ceil(a / b), rounding to plus infinity for all signs. b must not be 0.
DAGC_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  if (b == -1) return wrapped_negative(a);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) == (b < 0) ? quotient + 1 : quotient;
}

// a - b * floor(a / b): has the sign of b.
DAGC_HOST_DEVICE constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace dagc
