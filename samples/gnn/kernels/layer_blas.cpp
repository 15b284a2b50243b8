// A layer on the CPU with OpenBLAS. Parameters as in layer.dag.
#include "layer.hpp"

#include <cblas.h>

#include <algorithm>

#ifdef BLAS_SYMBOL_PREFIX  // OpenBLAS of the wheel scipy-openblas32: its functions have a prefix
#define cblas_sgemm scipy_cblas_sgemm
#define openblas_set_num_threads scipy_openblas_set_num_threads
#endif

// c = a b + add * c; rows of b are ld apart. Rows are divided over the threads of OpenMP, and OpenBLAS starts none of its
// own: these spin for some 20 ms after a product, on the cores that the aggregation needs.
static void multiply(float* c, const float* a, const float* b, int n, int K, int F, int ld, float add) {
  static const bool alone = (openblas_set_num_threads(1), true);
  static_cast<void>(alone);
  constexpr int kRows = 64;
#pragma omp parallel for schedule(static)
  for (int i = 0; i < n; i += kRows)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, std::min(kRows, n - i), F, K, 1, a + std::size_t(i) * K, K, b,
                ld, add, c + std::size_t(i) * F, F);
}

void cpu_transform_blas(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val,
                        int n, int, int K, int F, int own, bool relu, double, float* t) {
  const int wide = (1 + own) * F;
  multiply(t, T, w, n, K, wide, wide, 0);
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu);
}

void cpu_aggregate_blas(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val,
                        int n, int, int K, int F, int own, bool relu, double, float* t) {
  const int wide = (1 + own) * F;
  aggregate(t, nullptr, T, K, ptr, col, val, n, K, false);
  if (own) multiply(H, T, w, n, K, F, wide, 0);
  multiply(H, t, w + own * F, n, K, F, wide, own ? 1 : 0);
  if (!relu) return;
  const std::size_t size = std::size_t(n) * F;
#pragma omp parallel for simd if (size > 100000)
  for (std::size_t i = 0; i < size; ++i) H[i] = H[i] < 0 ? 0 : H[i];
}
