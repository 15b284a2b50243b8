// Comparison of results with a reference, and the poison that results are filled with before a run.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace dagc {

// What is compared: the elements, or one number of all of them: their sum, or the root of the sum of their squares.
enum class Of { elements, sum, norm };

// max|got - want| may be `atol` + `rtol` * max|want|; 0 and 0: equal. `nan_equal`: NaN is correct where the reference has
// NaN.
struct Tolerance {
  double rtol = 0;
  bool nan_equal = false;
  double atol = 0;
  Of of = Of::elements;
};

// Rounded once, where `long double` has the bits for the sums.
template <class T>
double of_all(Of of, const T* values, std::int64_t n) {
  long double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const long double value = static_cast<long double>(values[i]);
    sum += of == Of::norm ? value * value : value;
  }
  return static_cast<double>(of == Of::norm ? std::sqrt(sum) : sum);
}

// ---- poison --------------------------------------------------------------------------------------------------------

// Two values that every byte of an array may have before a run. One of them could be a correct result, but not both.
struct Poison {
  unsigned char bytes[2];
};

// Floats: NaN, and a large finite number, since maxima and comparisons ignore NaN. Integers: far from 0 and -1.
template <class T>
constexpr Poison poison_of() {
  if constexpr (std::is_same_v<T, bool>) return {{1, 0}};
  else if constexpr (std::is_floating_point_v<T>) return {{0xff, 0x7e}};
  else return {{0xa5, 0x5a}};
}

template <class T>
bool holds(const T& value, unsigned char byte) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  for (unsigned char b : bytes)
    if (b != byte) return false;
  return true;
}

// ---- comparison ----------------------------------------------------------------------------------------------------

// `7`, or `[129, 501]` where there are several dimensions.
inline std::string element_text(std::int64_t at, const std::vector<std::int64_t>& shape) {
  if (shape.size() < 2) return std::to_string(at);
  std::string out;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t length = shape[d] > 0 ? shape[d] : 1;
    out = std::to_string(d ? at % length : at) + (out.empty() ? "" : ", ") + out;
    at /= length;
  }
  return "[" + out + "]";
}

namespace detail {

__extension__ typedef unsigned __int128 Wide;

// floor(rtol * scale), exactly; the largest integer if it is larger.
inline std::uint64_t share(double rtol, std::uint64_t scale) {
  int exponent = 0;
  const std::uint64_t mantissa = static_cast<std::uint64_t>(std::ldexp(std::frexp(rtol, &exponent), 53));
  const Wide product = static_cast<Wide>(mantissa) * scale;
  const int shift = exponent - 53;
  if (product == 0) return 0;
  const Wide most = std::numeric_limits<std::uint64_t>::max();
  if (shift <= -128) return 0;
  if (shift <= 0) return static_cast<std::uint64_t>((product >> -shift) > most ? most : product >> -shift);
  return shift >= 64 || product > (most >> shift) ? static_cast<std::uint64_t>(most)
                                                  : static_cast<std::uint64_t>(product << shift);
}

// Each of the two terms is rounded down.
inline std::uint64_t allowed(const Tolerance& tolerance, std::uint64_t scale) {
  const std::uint64_t of_scale = share(tolerance.rtol, scale), fixed = share(tolerance.atol, 1);
  return fixed > std::numeric_limits<std::uint64_t>::max() - of_scale ? std::numeric_limits<std::uint64_t>::max() : of_scale + fixed;
}

template <class T>
std::uint64_t distance(T a, T b) {
  const T low = a < b ? a : b, high = a < b ? b : a;
  return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);  // modulo 2^64: also of i64
}

inline std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

template <class T>
std::string integers_differ(const T* got, const T* want, std::int64_t n, const Tolerance& tolerance,
                            const std::vector<std::int64_t>& shape, std::int64_t start, double* error) {
  std::uint64_t scale = 0, worst = 0;
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t off = distance(got[i], want[i]), size = distance(want[i], T{});
    scale = size > scale ? size : scale;
    if (off > worst) worst = off, at = i;
  }
  *error = worst == 0 ? 0 : static_cast<double>(worst) / static_cast<double>(scale);
  if (at < 0 || worst <= allowed(tolerance, scale)) return "";
  return "element " + element_text(start + at, shape) + " is " + std::to_string(got[at]) + ", expected " +
         std::to_string(want[at]) + "; largest difference " + std::to_string(worst) + ", allowed " +
         std::to_string(allowed(tolerance, scale));
}

template <class T>
std::string floats_differ(const T* got, const T* want, std::int64_t n, const Tolerance& tolerance,
                          const std::vector<std::int64_t>& shape, std::int64_t start, double* error) {
  double scale = 0, worst = 0, half = 0;  // half of the largest difference, which does not overflow
  std::int64_t at = -1, not_finite = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    if (std::isfinite(w)) scale = std::fmax(scale, std::fabs(w));
    if (g == w || (tolerance.nan_equal && std::isnan(g) && std::isnan(w))) continue;
    if (!std::isfinite(g) || !std::isfinite(w)) {
      if (not_finite < 0) not_finite = i;
      continue;
    }
    const double off = std::fabs(g - w), halved = std::fabs(0.5 * g - 0.5 * w);
    if (off > worst || (std::isinf(off) && halved > half)) worst = off, half = halved, at = i;
  }
  const double most = tolerance.atol + tolerance.rtol * scale;
  *error = not_finite >= 0 ? HUGE_VAL : worst == 0 ? 0 : std::isinf(worst) ? half / (0.5 * scale) : worst / scale;
  const bool within = std::isinf(worst) ? half <= 0.5 * tolerance.atol + tolerance.rtol * (0.5 * scale) : worst <= most;
  if (not_finite < 0 && (at < 0 || within)) return "";
  if (not_finite >= 0) at = not_finite, worst = HUGE_VAL;
  return "element " + element_text(start + at, shape) + " is " + number_text(static_cast<double>(got[at]), 9) +
         ", expected " + number_text(static_cast<double>(want[at]), 9) + "; largest difference " +
         number_text(worst, 3) + ", allowed " + number_text(most, 3);
}

}  // namespace detail

// "" if `got` agrees with `want`, else the difference. Integers are compared as integers. NaN and infinities are correct
// only where the reference has the same, NaN only under `nan_equal`. `got` is elements start, start + 1, ... of an array
// of this shape. `error`: max|got - want| / max|want|, infinite where one is not finite.
template <class T>
std::string difference(const T* got, const T* want, std::int64_t n, const Tolerance& tolerance,
                       const std::vector<std::int64_t>& shape = {}, std::int64_t start = 0, double* error = nullptr) {
  double unused = 0;
  if (error == nullptr) error = &unused;
  if constexpr (std::is_floating_point_v<T>) return detail::floats_differ(got, want, n, tolerance, shape, start, error);
  else return detail::integers_differ(got, want, n, tolerance, shape, start, error);
}

// As `difference`, of one number of all elements (`tolerance.of`).
template <class T>
std::string number_difference(const T* got, std::int64_t n, double want, const Tolerance& tolerance, double* error = nullptr) {
  const double number = of_all(tolerance.of, got, n);
  std::string wrong = difference(&number, &want, 1, tolerance, {}, 0, error);
  if (!wrong.empty()) wrong.replace(0, sizeof "element 0" - 1, "it");
  return wrong;
}

}  // namespace dagc
