// A layer on the CPU, all cores. Parameters as in layer.dag: H is n x F, T is n x K, w is K x (1 + own) F.
#include "layer.hpp"

#include <algorithm>
#include <vector>

static constexpr int kRows = 6, kColumns = 16;           // of a result in registers
typedef float Vector __attribute__((vector_size(kColumns * sizeof(float))));

// Columns first .. first + F of w, whose rows are ld apart, in panels of 16 columns; the last is filled with zeros.
static void pack(float* panels, const float* w, int K, int F, int ld) {
  const int count = (F + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static)
  for (int k = 0; k < K; ++k)
    for (int p = 0; p < count; ++p)
      for (int c = 0; c < kColumns; ++c) {
        const int f = p * kColumns + c;
        panels[(std::size_t(p) * K + k) * kColumns + c] = f < F ? w[std::size_t(k) * ld + f] : 0;
      }
}

// Up to kRows rows of out, ld = F, from as many of a; added to what is there if `add`.
EACH_PROCESSOR
static void multiply_rows(float* out, const float* a, const float* panels, int rows, int K, int F, bool add, bool relu) {
  const float* row[kRows];                                // the last one again where there are fewer
  for (int r = 0; r < kRows; ++r) row[r] = a + std::size_t(std::min(r, rows - 1)) * K;
  for (int first = 0; first < F; first += kColumns, panels += std::size_t(K) * kColumns) {
    Vector sum[kRows] = {};
    for (int k = 0; k < K; ++k) {
      Vector b;
      __builtin_memcpy(&b, panels + std::size_t(k) * kColumns, sizeof b);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) sum[r] += row[r][k] * b;
    }
    const int width = std::min(kColumns, F - first);
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < width; ++c) {
        float& to = out[std::size_t(r) * F + first + c];
        const float all = add ? to + sum[r][c] : sum[r][c];
        to = relu && all < 0 ? 0 : all;
      }
  }
}

static void multiply(float* out, const float* a, const float* panels, int n, int K, int F, bool add, bool relu) {
#pragma omp parallel for schedule(static)
  for (int i = 0; i < n; i += kRows)
    multiply_rows(out + std::size_t(i) * F, a + std::size_t(i) * K, panels, std::min(kRows, n - i), K, F, add, relu);
}

// Numbers of a row that are not zero. Sixteen zeros in a row take one test.
EACH_PROCESSOR
static int compress(int* col, float* val, const float* a, int K) {
  int found = 0;
  for (int first = 0; first < K; first += 16) {
    const int end = std::min(K, first + 16);
    int some = 0;
    for (int k = first; k < end; ++k) some |= a[k] != 0;
    if (some == 0) continue;
    for (int k = first; k < end; ++k) {                   // without a branch, which random zeros would mislead
      col[found] = k;
      val[found] = a[k];
      found += a[k] != 0;
    }
  }
  return found;
}

EACH_PROCESSOR
static void multiply_compressed(float* out, const int* col, const float* val, int found, const float* panels, int K,
                                int F) {
  for (int first = 0; first < F; first += kColumns, panels += std::size_t(K) * kColumns) {
    Vector sum = {};
    for (int e = 0; e < found; ++e) {
      Vector b;
      __builtin_memcpy(&b, panels + std::size_t(col[e]) * kColumns, sizeof b);
      sum += val[e] * b;
    }
    for (int c = 0; c < std::min(kColumns, F - first); ++c) out[first + c] = sum[c];
  }
}

void cpu_transform(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n,
                   int, int K, int F, int own, bool relu, double, float* t, float* panels) {
  const int wide = (1 + own) * F;
  pack(panels, w, K, wide, wide);
  multiply(t, T, panels, n, K, wide, false, false);
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu);
}

void cpu_aggregate(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n,
                   int, int K, int F, int own, bool relu, double, float* t, float* panels) {
  const int wide = (1 + own) * F;
  aggregate(t, nullptr, T, K, ptr, col, val, n, K, false);
  if (own) {
    pack(panels, w, K, F, wide);
    multiply(H, T, panels, n, K, F, false, false);
    panels += std::size_t(K) * ((F + kColumns - 1) / kColumns) * kColumns;
  }
  pack(panels, w + own * F, K, F, wide);
  multiply(H, t, panels, n, K, F, own, relu);
}

void cpu_sparse(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n, int,
                int K, int F, int own, bool relu, double, float* t, float* panels) {
  const int wide = (1 + own) * F;
  pack(panels, w, K, wide, wide);
#pragma omp parallel
  {
    std::vector<int> place(K + 16);
    std::vector<float> value(K + 16);
#pragma omp for schedule(static)
    for (int i = 0; i < n; ++i) {
      const int found = compress(place.data(), value.data(), T + std::size_t(i) * K, K);
      multiply_compressed(t + std::size_t(i) * wide, place.data(), value.data(), found, panels, K, wide);
    }
  }
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu);
}
