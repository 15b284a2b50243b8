// A layer on the CPU with OpenBLAS. Parameters as in layer.dag.
#include "layer.hpp"

#include <cblas.h>

#ifdef BLAS_SYMBOL_PREFIX  // OpenBLAS of the wheel scipy-openblas32: its functions have a prefix
#define cblas_sgemm scipy_cblas_sgemm
#endif

// c = a b + add * c; rows of b are ld apart.
static void multiply(float* c, const float* a, const float* b, int n, int K, int F, int ld, float add) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, F, K, 1, a, K, b, ld, add, c, F);
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
