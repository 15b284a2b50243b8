// Arithmetic of CUDA's device code that <math.h> lacks, for the host target.
#pragma once

#include <math.h>

#include <cfenv>
#include <cstdint>
#include <limits>

#include "host_device.hpp"

// ---- arithmetic of CUDA that is not in <math.h>
// ------------------------------------------------------------------

template <class = void>  // as min and max below
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }

// ---- arithmetic with a rounding mode
// ---------------------------------------------------------------------------------

namespace dagc::host {
// A value that compilers do not know: they move and fold arithmetic as if the rounding mode never changed.
template <class T>
T unknown(T value) {
  volatile T kept = value;
  return kept;
}

// The result of an operation under a rounding mode.
template <class Operation, class... T>
auto rounded(int mode, Operation operation, T... operands) {
  const int before = std::fegetround();
  std::fesetround(mode);
  const auto result = unknown(operation(unknown(operands)...));
  std::fesetround(before);
  return result;
}
}  // namespace dagc::host

#define DAGC_ROUNDED(type, name, formals, arguments, operation)                                           \
  inline type name##_rn formals { return (operation)arguments; } \
  inline type name##_rz formals { return dagc::host::rounded(FE_TOWARDZERO, operation, DAGC_ALL arguments); } \
  inline type name##_rd formals { return dagc::host::rounded(FE_DOWNWARD, operation, DAGC_ALL arguments); } \
  inline type name##_ru formals { return dagc::host::rounded(FE_UPWARD, operation, DAGC_ALL arguments); }
#define DAGC_ALL(...) __VA_ARGS__
#define DAGC_ARITHMETIC(T, letter, root, product_and_sum, fma)                                            \
  DAGC_ROUNDED(T, __##letter##add, (T a, T b), (a, b), [](T x, T y) { return x + y; })                    \
  DAGC_ROUNDED(T, __##letter##sub, (T a, T b), (a, b), [](T x, T y) { return x - y; })                    \
  DAGC_ROUNDED(T, __##letter##mul, (T a, T b), (a, b), [](T x, T y) { return x * y; })                    \
  DAGC_ROUNDED(T, __##letter##div, (T a, T b), (a, b), [](T x, T y) { return x / y; })                    \
  DAGC_ROUNDED(T, __##letter##rcp, (T a), (a), [](T x) { return 1 / x; })                                 \
  DAGC_ROUNDED(T, __##letter##sqrt, (T a), (a), [](T x) { return root(x); })                              \
  DAGC_ROUNDED(T, fma, (T a, T b, T c), (a, b, c), [](T x, T y, T z) { return product_and_sum(x, y, z); })
DAGC_ARITHMETIC(float, f, ::sqrtf, ::fmaf, __fmaf)
DAGC_ARITHMETIC(double, d, ::sqrt, ::fma, __fma)
#undef DAGC_ARITHMETIC
DAGC_ROUNDED(float, __fmaf_ieee, (float a, float b, float c), (a, b, c),
             [](float x, float y, float z) { return ::fmaf(x, y, z); })
DAGC_ROUNDED(float, __double2float, (double a), (a), [](double x) { return static_cast<float>(x); })
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))); }

// Arguments in units of pi. The reduction is exact, so whole and half arguments
// give exact results, as on a GPU.
namespace dagc::host {
inline double sine_of_pi(double x) {
  double r = remainder(x, 2.0);
  if (fabs(r) > 0.5) r = copysign(1.0 - fabs(r), r);
  return ::sin(3.14159265358979323846 * r);
}
inline double cosine_of_pi(double x) { return sine_of_pi(0.5 - fabs(remainder(x, 2.0))); }
}  // namespace dagc::host
#if !defined(__GLIBC__) || __GLIBC__ * 100 + __GLIBC_MINOR__ < 241  // in <math.h> since C23
inline double sinpi(double x) { return dagc::host::sine_of_pi(x); }
inline double cospi(double x) { return dagc::host::cosine_of_pi(x); }
inline float sinpif(float x) { return static_cast<float>(dagc::host::sine_of_pi(x)); }
inline float cospif(float x) { return static_cast<float>(dagc::host::cosine_of_pi(x)); }
#endif
inline void sincospi(double x, double *sine, double *cosine) { *sine = sinpi(x), *cosine = cospi(x); }
inline void sincospif(float x, float *sine, float *cosine) { *sine = sinpif(x), *cosine = cospif(x); }
inline void __sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
inline float normcdff(float x) { return static_cast<float>(normcdf(x)); }
inline double norm3d(double a, double b, double c) { return ::hypot(::hypot(a, b), c); }
inline float norm3df(float a, float b, float c) { return hypotf(hypotf(a, b), c); }
inline double norm4d(double a, double b, double c, double d) { return ::hypot(norm3d(a, b, c), d); }
inline float norm4df(float a, float b, float c, float d) { return hypotf(norm3df(a, b, c), d); }
inline double rhypot(double a, double b) { return 1.0 / ::hypot(a, b); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }

// ---- integers
// ------------------------------------------------------------------------------------------------------

inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 |
         __brev(static_cast<unsigned int>(x >> 32));
}
inline unsigned int __umul24(unsigned int a, unsigned int b) { return (a & 0xffffffu) * (b & 0xffffffu); }
__extension__ typedef __int128 dagc_int128;
__extension__ typedef unsigned __int128 dagc_uint128;
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<dagc_int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<dagc_uint128>(a) * b >> 64);
}
inline unsigned int __usad(unsigned int a, unsigned int b, unsigned int sum) { return sum + (a < b ? b - a : a - b); }
inline unsigned int __sad(int a, int b, unsigned int sum) {
  return sum + (a < b ? static_cast<unsigned int>(b) - static_cast<unsigned int>(a)
                      : static_cast<unsigned int>(a) - static_cast<unsigned int>(b));
}
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
inline unsigned int __uhadd(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(a) + b) >> 1);
}
inline unsigned int __urhadd(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(a) + b + 1) >> 1);
}
// The sum of the products of four bytes each, and c.
inline int __dp4a(int a, int b, int c) {
  unsigned int sum = static_cast<unsigned int>(c);
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<unsigned int>(static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i));
  }
  return static_cast<int>(sum);
}
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xffu) * (b >> i & 0xffu);
  return c;
}
// The sum of the products of two halves of a and two bytes of b, its lower or upper ones, and c.
#define DAGC_DP2A(T, Half, Byte)                                                                             \
  inline T __dp2a_lo(T a, T b, T c) {                                                                        \
    const auto product = [&](int i) {                                                                        \
      return static_cast<unsigned int>(static_cast<Half>(a >> 16 * i) * static_cast<Byte>(b >> 8 * i));      \
    };                                                                                                       \
    return static_cast<T>(static_cast<unsigned int>(c) + product(0) + product(1));                           \
  }                                                                                                          \
  inline T __dp2a_hi(T a, T b, T c) { return __dp2a_lo(a, static_cast<T>(b >> 16), c); }
DAGC_DP2A(int, short, signed char)
DAGC_DP2A(unsigned int, unsigned short, unsigned char)
#undef DAGC_DP2A
// Four of the eight bytes of high:low, by the lower three bits of each nibble
// of the selector.
inline unsigned int __byte_perm(unsigned int low, unsigned int high, unsigned int selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned int out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<unsigned int>(bytes >> 8 * (selector >> 4 * i & 7u) & 0xffu) << 8 * i;
  }
  return out;
}
// high:low shifted by 0 to 31 bits (_l, _r) or 0 to 32 (_lc, _rc): the upper
// word, shifted left; the lower, right.
inline unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned int>(both << (shift < 32 ? shift : 32) >> 32);
}
inline unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned int>(both >> (shift < 32 ? shift : 32));
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  return __funnelshift_lc(low, high, shift & 31u);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return __funnelshift_rc(low, high, shift & 31u);
}

// ---- conversions
// ---------------------------------------------------------------------------------------------------

namespace dagc::host {
// The nearest value of T; 0 for NaN. The bounds are exact: `over` is a power of
// two.
template <class T>
T saturated(double whole) {
  constexpr double over = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (whole >= over) return std::numeric_limits<T>::max();
  if (whole < static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return whole == whole ? static_cast<T>(whole) : T{0};
}
}  // namespace dagc::host

#define DAGC_TO_INTEGER(source, name, target)                                                                \
  inline target __##source##2##name##_rn(source x) { return dagc::host::saturated<target>(::nearbyint(x)); } \
  inline target __##source##2##name##_rz(source x) { return dagc::host::saturated<target>(::trunc(x)); }     \
  inline target __##source##2##name##_rd(source x) { return dagc::host::saturated<target>(::floor(x)); }     \
  inline target __##source##2##name##_ru(source x) { return dagc::host::saturated<target>(::ceil(x)); }
#define DAGC_CONVERSIONS(name, type)                                         \
  DAGC_TO_INTEGER(float, name, type)                                         \
  DAGC_TO_INTEGER(double, name, type)                                        \
  DAGC_ROUNDED(float, __##name##2float, (type a), (a), [](type x) { return static_cast<float>(x); })    \
  DAGC_ROUNDED(double, __##name##2double, (type a), (a), [](type x) { return static_cast<double>(x); })
DAGC_CONVERSIONS(int, int)
DAGC_CONVERSIONS(uint, unsigned int)
DAGC_CONVERSIONS(ll, long long)
DAGC_CONVERSIONS(ull, unsigned long long)
#undef DAGC_CONVERSIONS
#undef DAGC_TO_INTEGER
#undef DAGC_ROUNDED
#undef DAGC_ALL
inline int __double2hiint(double x) { return static_cast<int>(dagc::host::to_bits(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(dagc::host::to_bits(x)); }
inline double __hiloint2double(int high, int low) {
  return dagc::host::from_bits<double>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 |
                                       static_cast<std::uint32_t>(low));
}

// ---- minimum and maximum
// -------------------------------------------------------------------------------------------

// Templates: a program may define its own for `int`, as NVIDIA's helper_math.h does for compilers that are not nvcc.
template <class A, class B, class = std::enable_if_t<std::is_integral_v<A> && std::is_integral_v<B>>>
constexpr std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B, class = std::enable_if_t<std::is_integral_v<A> && std::is_integral_v<B>>>
constexpr std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}
// As in CUDA, and unlike std::min: NaN is ignored if the other is a number.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
