// What the versions on the CPU share: aggregation over the neighbours.
#pragma once

#include <cstddef>

// Compiled for several processors; the program takes what its own has. No -march is needed.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define EACH_PROCESSOR
#endif

// Row i of `out`, F wide, is the sum over its neighbours of val * row of t; plus row i of `own` unless that is null; rows
// of t and own are ld apart. With `relu`, negative sums become 0.
EACH_PROCESSOR
static void aggregate_row(float* out, int i, const float* own, const float* t, std::size_t ld, const int* ptr,
                          const int* col, const float* val, int F, bool relu) {
  constexpr int kWidth = 64;                              // columns at a time: they stay in registers
  for (int first = 0; first < F; first += kWidth) {
    const int width = F - first < kWidth ? F - first : kWidth;
    float sum[kWidth];
    for (int f = 0; f < width; ++f) sum[f] = own != nullptr ? own[i * ld + first + f] : 0;
    for (int k = ptr[i]; k < ptr[i + 1]; ++k) {
      const float* row = t + col[k] * ld + first;
      const float weight = val[k];
      for (int f = 0; f < width; ++f) sum[f] += weight * row[f];
    }
    for (int f = 0; f < width; ++f) out[std::size_t(i) * F + first + f] = relu && sum[f] < 0 ? 0 : sum[f];
  }
}

static inline void aggregate(float* out, const float* own, const float* t, std::size_t ld, const int* ptr,
                             const int* col, const float* val, int n, int F, bool relu) {
  // Nodes have from 1 to thousands of neighbours: pieces of 64 nodes, whoever is free takes the next.
#pragma omp parallel for schedule(dynamic, 64)
  for (int i = 0; i < n; ++i) aggregate_row(out, i, own, t, ld, ptr, col, val, F, relu);
}
