// Integer arithmetic as the language defines it, for host and device code.
#pragma once

#include <cmath>
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

// Of real numbers, exact; NaN for b = 0.
DAGC_HOST_DEVICE inline double real_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// The integer that a whole number is; the least one for what 64 bits do not hold, which no size, place or count is.
// INT64_MIN, since device code must not call std::numeric_limits<std::int64_t>::min().
DAGC_HOST_DEVICE inline std::int64_t integer(double whole) {
  constexpr double end = 9223372036854775808.0;
  return whole >= -end && whole < end ? static_cast<std::int64_t>(whole) : INT64_MIN;
}
DAGC_HOST_DEVICE inline std::int64_t floor(double a) { return integer(std::floor(a)); }
DAGC_HOST_DEVICE inline std::int64_t ceil(double a) { return integer(std::ceil(a)); }

}  // namespace dagc
