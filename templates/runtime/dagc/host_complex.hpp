// Host target: complex numbers of `cuComplex.h`.
#pragma once

#include <cmath>

#include "host_types.hpp"

using cuFloatComplex = float2;
using cuDoubleComplex = double2;
using cuComplex = cuFloatComplex;

// `f`: what CUDA appends to the names of single precision.
#define DAGC_COMPLEX(Name, real, f)                                                                       \
  inline Name make_##Name(real x, real y) { return {x, y}; }                                                    \
  inline real cuCreal##f(Name x) { return x.x; }                                                                \
  inline real cuCimag##f(Name x) { return x.y; }                                                                \
  inline real cuCabs##f(Name x) { return std::hypot(x.x, x.y); }                                                \
  inline Name cuConj##f(Name x) { return {x.x, -x.y}; }                                                         \
  inline Name cuCadd##f(Name a, Name b) { return {a.x + b.x, a.y + b.y}; }                                      \
  inline Name cuCsub##f(Name a, Name b) { return {a.x - b.x, a.y - b.y}; }                                      \
  inline Name cuCmul##f(Name a, Name b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }              \
  inline Name cuCfma##f(Name a, Name b, Name c) { return cuCadd##f(cuCmul##f(a, b), c); }                       \
  inline Name cuCdiv##f(Name a, Name b) { /* scaled against overflow, as CUDA's */                              \
    const real s = 1 / (std::fabs(b.x) + std::fabs(b.y)), ax = a.x * s, ay = a.y * s, bx = b.x * s, by = b.y * s; \
    const real t = 1 / (bx * bx + by * by);                                                                     \
    return {(ax * bx + ay * by) * t, (ay * bx - ax * by) * t};                                                  \
  }
DAGC_COMPLEX(cuFloatComplex, float, f)
DAGC_COMPLEX(cuDoubleComplex, double, )
#undef DAGC_COMPLEX

inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return {static_cast<float>(z.x), static_cast<float>(z.y)};
}
