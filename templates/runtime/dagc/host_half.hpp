// Host target: half precision and bfloat16, `cuda_fp16.h` and `cuda_bf16.h`. Each operation is computed in single
// precision (a fused one in double) and rounded to the nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "host_device.hpp"
#include "host_math.hpp"
#include "host_types.hpp"

namespace dagc::host {

// A floating-point number of 16 bits, with the formats of IEEE 754.
template <int Mantissa, int Exponent>
struct Narrow {
  static_assert(Mantissa + Exponent == 15);
  static constexpr int kBias = (1 << (Exponent - 1)) - 1, kLast = (1 << Exponent) - 1;
  std::uint16_t bits;

  Narrow() = default;
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Narrow(Number value) : bits(rounded(static_cast<double>(value))) {}
  template <int M, int E, class = std::enable_if_t<M != Mantissa>>
  explicit Narrow(Narrow<M, E> other) : Narrow(static_cast<float>(other)) {}
  static Narrow of_bits(std::uint16_t bits) {
    Narrow out;
    out.bits = bits;
    return out;
  }
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Narrow& operator=(Number value) {
    bits = rounded(static_cast<double>(value));
    return *this;
  }

  operator float() const {
    const std::uint32_t sign = bits & 0x8000u, exponent = bits >> Mantissa & kLast, mantissa = bits & ((1u << Mantissa) - 1);
    if (exponent == 0) {  // zero or subnormal
      const float size = std::ldexp(static_cast<float>(mantissa), 1 - kBias - Mantissa);
      return sign != 0 ? -size : size;
    }
    const std::uint32_t wide = exponent == kLast ? 255u : exponent - kBias + 127u;
    return from_bits<float>(sign << 16 | wide << 23 | mantissa << (23 - Mantissa));
  }

  // The bits of the nearest number, ties to even.
  static std::uint16_t rounded(double value) {
    std::uint64_t from;
    std::memcpy(&from, &value, sizeof from);
    const auto sign = static_cast<std::uint64_t>(from >> 63) << 15;
    const int exponent = static_cast<int>(from >> 52 & 0x7ff) - 1023;
    std::uint64_t mantissa = from & ((std::uint64_t{1} << 52) - 1);
    constexpr std::uint64_t infinity = std::uint64_t{kLast} << Mantissa;
    if (exponent == 1024) return static_cast<std::uint16_t>(sign | infinity | (mantissa != 0 ? 1u << (Mantissa - 1) : 0));
    if (exponent > kBias) return static_cast<std::uint16_t>(sign | infinity);
    int drop = 52 - Mantissa;
    if (exponent < 1 - kBias) {
      drop += 1 - kBias - exponent;
      if (drop > 53) return static_cast<std::uint16_t>(sign);
      mantissa |= std::uint64_t{1} << 52;
    } else {
      mantissa |= static_cast<std::uint64_t>(exponent + kBias) << 52;
    }
    const std::uint64_t half = std::uint64_t{1} << (drop - 1), rest = mantissa & (2 * half - 1);
    std::uint64_t out = mantissa >> drop;
    out += rest > half || (rest == half && (out & 1) != 0);  // a carry makes the exponent one larger
    return static_cast<std::uint16_t>(sign | out);
  }

  // Truncates, and goes to the next number if that is not in the direction of a rounding mode of <cfenv>.
  static Narrow directed(double value, int mode) {
    Narrow out = of_bits(rounded(value));
    const double is = out;
    const bool above = is > value, below = is < value;
    const bool down = mode == FE_DOWNWARD || (mode == FE_TOWARDZERO && value > 0);
    const bool up = mode == FE_UPWARD || (mode == FE_TOWARDZERO && value < 0);
    if (above && down) out.bits = static_cast<std::uint16_t>(out.bits == 0 ? 0x8001 : value < 0 ? out.bits + 1 : out.bits - 1);
    if (below && up) out.bits = static_cast<std::uint16_t>((out.bits & 0x7fff) == 0 ? 1 : value > 0 ? out.bits + 1 : out.bits - 1);
    return out;
  }

  Narrow operator-() const { return of_bits(bits ^ 0x8000); }
  Narrow operator+() const { return *this; }
  Narrow& operator++() { return *this = static_cast<float>(*this) + 1; }
  Narrow& operator--() { return *this = static_cast<float>(*this) - 1; }

#define DAGC_OPERATOR(op)                                                                                     \
  friend Narrow operator op(Narrow a, Narrow b) { return static_cast<float>(a) op static_cast<float>(b); }    \
  Narrow& operator op##=(Narrow b) { return *this = *this op b; }
  DAGC_OPERATOR(+)
  DAGC_OPERATOR(-)
  DAGC_OPERATOR(*)
  DAGC_OPERATOR(/)
#undef DAGC_OPERATOR
#define DAGC_OPERATOR(op) \
  friend bool operator op(Narrow a, Narrow b) { return static_cast<float>(a) op static_cast<float>(b); }
  DAGC_OPERATOR(==)
  DAGC_OPERATOR(!=)
  DAGC_OPERATOR(<)
  DAGC_OPERATOR(>)
  DAGC_OPERATOR(<=)
  DAGC_OPERATOR(>=)
#undef DAGC_OPERATOR
};

// Two of them, as one register has them.
template <class T>
struct alignas(4) Two {
  T x, y;
  Two() = default;
  Two(T a, T b) : x(a), y(b) {}
  template <class F>
  static Two of(Two a, F function) {
    return {function(a.x), function(a.y)};
  }
  template <class F>
  static Two of(Two a, Two b, F function) {
    return {function(a.x, b.x), function(a.y, b.y)};
  }
#define DAGC_OPERATOR(op)                                                                   \
  friend Two operator op(Two a, Two b) { return {a.x op b.x, a.y op b.y}; } \
  Two& operator op##=(Two b) { return *this = *this op b; }
  DAGC_OPERATOR(+)
  DAGC_OPERATOR(-)
  DAGC_OPERATOR(*)
  DAGC_OPERATOR(/)
#undef DAGC_OPERATOR
  Two operator-() const { return {-x, -y}; }
  friend bool operator==(Two a, Two b) { return a.x == b.x && a.y == b.y; }
  friend bool operator!=(Two a, Two b) { return !(a == b); }
};

template <class T>
T fused(T a, T b, T c) {
  return std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
}
template <class T>
T magnitude(T a) {
  return T::of_bits(a.bits & 0x7fff);
}

}  // namespace dagc::host

using __half = dagc::host::Narrow<10, 5>;
using __nv_bfloat16 = dagc::host::Narrow<7, 8>;
using __half2 = dagc::host::Two<__half>;
using __nv_bfloat162 = dagc::host::Two<__nv_bfloat16>;
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
struct __half_raw {
  unsigned short x;
};

// ---- arithmetic: of one number, and of two
// ---------------------------------------------------------------------------

#define DAGC_BOTH(T, name, name2, expression)                                             \
  inline T name(T a, T b) { return expression; }                                          \
  inline dagc::host::Two<T> name2(dagc::host::Two<T> x, dagc::host::Two<T> y) {           \
    return dagc::host::Two<T>::of(x, y, [](T a, T b) { return T(expression); });          \
  }
#define DAGC_COMPARED(T, name, op)                                                                     \
  inline bool __h##name(T a, T b) { return a op b; }                                                      \
  inline dagc::host::Two<T> __h##name##2(dagc::host::Two<T> x, dagc::host::Two<T> y) {                 \
    return dagc::host::Two<T>::of(x, y, [](T a, T b) { return T(a op b ? 1.0f : 0.0f); });             \
  }                                                                                                    \
  inline bool __hb##name##2(dagc::host::Two<T> x, dagc::host::Two<T> y) { return x.x op y.x && x.y op y.y; }
#define DAGC_ONE(T, name, expression)                                                     \
  inline T h##name(T value) {                                                             \
    const float a = value;                                                                \
    return expression;                                                                    \
  }                                                                                       \
  inline dagc::host::Two<T> h2##name(dagc::host::Two<T> x) { return {h##name(x.x), h##name(x.y)}; }
#define DAGC_HALF(T)                                                                                              \
  DAGC_BOTH(T, __hadd, __hadd2, a + b)                                                                            \
  DAGC_BOTH(T, __hsub, __hsub2, a - b)                                                                            \
  DAGC_BOTH(T, __hmul, __hmul2, a* b)                                                                             \
  DAGC_BOTH(T, __hdiv, __h2div, a / b)                                                                            \
  DAGC_BOTH(T, __hadd_rn, __hadd2_rn, a + b)                                                                      \
  DAGC_BOTH(T, __hsub_rn, __hsub2_rn, a - b)                                                                      \
  DAGC_BOTH(T, __hmul_rn, __hmul2_rn, a* b)                                                                       \
  DAGC_BOTH(T, __hadd_sat, __hadd2_sat, __saturatef(a + b))                                                       \
  DAGC_BOTH(T, __hsub_sat, __hsub2_sat, __saturatef(a - b))                                                       \
  DAGC_BOTH(T, __hmul_sat, __hmul2_sat, __saturatef(a* b))                                                        \
  DAGC_BOTH(T, __hmax, __hmax2, T(fmaxf(a, b)))                                                                   \
  DAGC_BOTH(T, __hmin, __hmin2, T(fminf(a, b)))                                                                   \
  DAGC_COMPARED(T, eq, ==)                                                                                        \
  DAGC_COMPARED(T, ne, !=)                                                                                        \
  DAGC_COMPARED(T, lt, <)                                                                                         \
  DAGC_COMPARED(T, gt, >)                                                                                         \
  DAGC_COMPARED(T, le, <=)                                                                                        \
  DAGC_COMPARED(T, ge, >=)                                                                                        \
  inline T __hneg(T a) { return -a; }                                                                             \
  inline T __habs(T a) { return dagc::host::magnitude(a); }                                                       \
  inline dagc::host::Two<T> __hneg2(dagc::host::Two<T> a) { return -a; }                                          \
  inline dagc::host::Two<T> __habs2(dagc::host::Two<T> a) { return {__habs(a.x), __habs(a.y)}; }                  \
  inline bool __hisnan(T a) { return a != a; }                                                                    \
  inline int __hisinf(T a) { return std::isinf(static_cast<float>(a)) ? (a.bits >> 15 != 0 ? -1 : 1) : 0; }       \
  inline T __hfma(T a, T b, T c) { return dagc::host::fused(a, b, c); }                                           \
  inline T __hfma_rn(T a, T b, T c) { return dagc::host::fused(a, b, c); }                                        \
  inline T __hfma_relu(T a, T b, T c) { return T(fmaxf(dagc::host::fused(a, b, c), 0.0f)); }                      \
  inline T __hfma_sat(T a, T b, T c) { return __saturatef(dagc::host::fused(a, b, c)); }                          \
  inline dagc::host::Two<T> __hfma2(dagc::host::Two<T> a, dagc::host::Two<T> b, dagc::host::Two<T> c) {           \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                                        \
  }                                                                                                               \
  DAGC_ONE(T, exp, expf(a))                                                                                       \
  DAGC_ONE(T, exp2, exp2f(a))                                                                                     \
  DAGC_ONE(T, exp10, powf(10.0f, a))                                                                              \
  DAGC_ONE(T, log, logf(a))                                                                                       \
  DAGC_ONE(T, log2, log2f(a))                                                                                     \
  DAGC_ONE(T, log10, log10f(a))                                                                                   \
  DAGC_ONE(T, sin, sinf(a))                                                                                       \
  DAGC_ONE(T, cos, cosf(a))                                                                                       \
  DAGC_ONE(T, tanh, tanhf(a))                                                                                     \
  DAGC_ONE(T, sqrt, sqrtf(a))                                                                                     \
  DAGC_ONE(T, rsqrt, rsqrtf(a))                                                                                   \
  DAGC_ONE(T, rcp, 1.0f / a)                                                                                      \
  DAGC_ONE(T, ceil, ceilf(a))                                                                                     \
  DAGC_ONE(T, floor, floorf(a))                                                                                   \
  DAGC_ONE(T, trunc, truncf(a))                                                                                   \
  DAGC_ONE(T, rint, rintf(a))                                                                                     \
  inline float __low2float(dagc::host::Two<T> a) { return a.x; }                                                  \
  inline float __high2float(dagc::host::Two<T> a) { return a.y; }                                                 \
  inline T atomicAdd(T* address, T value) {                                                                       \
    return dagc::host::atomic_change(address, [value](T old) { return old + value; });                            \
  }                                                                                                               \
  inline dagc::host::Two<T> atomicAdd(dagc::host::Two<T>* address, dagc::host::Two<T> value) {                    \
    return dagc::host::atomic_change(address, [value](dagc::host::Two<T> old) { return old + value; });           \
  }                                                                                                               \
  DAGC_SHUFFLES(T)                                                                                                \
  DAGC_SHUFFLES(dagc::host::Two<T>)
DAGC_HALF(__half)
DAGC_HALF(__nv_bfloat16)
#undef DAGC_HALF
#undef DAGC_ONE
#undef DAGC_COMPARED
#undef DAGC_BOTH

// ---- conversions: `name` of one, `name2` of two, as they are in names
// -------------------------------------------------------

#define DAGC_CONVERSIONS(T, name, name2)                                                                              \
  inline T __float2##name(float a) { return a; }                                                                      \
  inline T __float2##name##_rn(float a) { return a; }                                                                 \
  inline T __float2##name##_rz(float a) { return T::directed(a, FE_TOWARDZERO); }                                     \
  inline T __float2##name##_rd(float a) { return T::directed(a, FE_DOWNWARD); }                                       \
  inline T __float2##name##_ru(float a) { return T::directed(a, FE_UPWARD); }                                         \
  inline T __double2##name(double a) { return a; }                                                                    \
  inline float __##name##2float(T a) { return a; }                                                                    \
  inline T __int2##name##_rn(int a) { return a; }                                                                     \
  inline T __uint2##name##_rn(unsigned int a) { return a; }                                                           \
  inline T __short2##name##_rn(short a) { return a; }                                                                 \
  inline T __ushort2##name##_rn(unsigned short a) { return a; }                                                       \
  inline T __ll2##name##_rn(long long a) { return a; }                                                                \
  inline T __ull2##name##_rn(unsigned long long a) { return a; }                                                      \
  inline int __##name##2int_rn(T a) { return __float2int_rn(a); }                                                     \
  inline int __##name##2int_rz(T a) { return __float2int_rz(a); }                                                     \
  inline int __##name##2int_rd(T a) { return __float2int_rd(a); }                                                     \
  inline int __##name##2int_ru(T a) { return __float2int_ru(a); }                                                     \
  inline unsigned int __##name##2uint_rn(T a) { return __float2uint_rn(a); }                                          \
  inline unsigned int __##name##2uint_rz(T a) { return __float2uint_rz(a); }                                          \
  inline T __ushort_as_##name(unsigned short a) { return T::of_bits(a); }                                             \
  inline T __short_as_##name(short a) { return T::of_bits(static_cast<std::uint16_t>(a)); }                           \
  inline unsigned short __##name##_as_ushort(T a) { return a.bits; }                                                  \
  inline short __##name##_as_short(T a) { return static_cast<short>(a.bits); }                                        \
  inline dagc::host::Two<T> __float2##name2##_rn(float a) { return {a, a}; }                                          \
  inline dagc::host::Two<T> __floats2##name2##_rn(float a, float b) { return {a, b}; }                                \
  inline dagc::host::Two<T> __float22##name2##_rn(float2 a) { return {a.x, a.y}; }                                    \
  inline float2 __##name2##2float2(dagc::host::Two<T> a) { return {a.x, a.y}; }                                       \
  inline dagc::host::Two<T> __##name##2##name2(T a) { return {a, a}; }                                                \
  inline dagc::host::Two<T> __halves2##name2(T a, T b) { return {a, b}; }                                             \
  inline T __low2##name(dagc::host::Two<T> a) { return a.x; }                                                         \
  inline T __high2##name(dagc::host::Two<T> a) { return a.y; }                                                        \
  inline dagc::host::Two<T> __low2##name2(dagc::host::Two<T> a) { return {a.x, a.x}; }                                \
  inline dagc::host::Two<T> __high2##name2(dagc::host::Two<T> a) { return {a.y, a.y}; }                               \
  inline dagc::host::Two<T> __lows2##name2(dagc::host::Two<T> a, dagc::host::Two<T> b) { return {a.x, b.x}; }         \
  inline dagc::host::Two<T> __highs2##name2(dagc::host::Two<T> a, dagc::host::Two<T> b) { return {a.y, b.y}; }        \
  inline dagc::host::Two<T> make_##name2(T a, T b) { return {a, b}; }
DAGC_CONVERSIONS(__half, half, half2)
DAGC_CONVERSIONS(__nv_bfloat16, bfloat16, bfloat162)
#undef DAGC_CONVERSIONS
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }

#undef DAGC_SHUFFLES
