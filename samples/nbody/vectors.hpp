// Vectors of floats on the CPU, of several registers where they are narrower.
#pragma once

// Compiled for several processors; the program takes what its own has. No -march is needed.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define EACH_PROCESSOR
#endif

constexpr int kWidth = 16;
typedef float Vector __attribute__((vector_size(kWidth * sizeof(float))));
typedef int Bits __attribute__((vector_size(kWidth * sizeof(float))));

// 1 / sqrt(x) by three steps of Newton's method: a relative error of about 1e-7.
static inline __attribute__((always_inline)) void inverse_root(Vector& root, const Vector& x) {
  root = reinterpret_cast<Vector>(0x5f375a86 - (reinterpret_cast<Bits>(x) >> 1));
  for (int i = 0; i < 3; ++i) root *= 1.5f - 0.5f * x * root * root;
}

// Adds what a body of this mass and place does to those at `at`, over G.
static inline __attribute__((always_inline)) void attract_by(Vector (&sum)[3], const Vector (&at)[3], float x, float y,
                                                             float z, float mass, float soft) {
  const Vector dx = x - at[0], dy = y - at[1], dz = z - at[2];
  Vector root;
  inverse_root(root, dx * dx + dy * dy + dz * dz + soft * soft);
  const Vector pull = mass * root * root * root;
  sum[0] += pull * dx;
  sum[1] += pull * dy;
  sum[2] += pull * dz;
}
