// C = A B through OpenBLAS, row-major: C is M x N, A is M x K, B is K x N; with `relu`, max(C, 0).
#include <cblas.h>

#include <cstddef>

#ifdef BLAS_SYMBOL_PREFIX  // OpenBLAS of the wheel scipy-openblas32: its functions have a prefix
#define cblas_sgemm scipy_cblas_sgemm
#endif

void gemm_blas(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1, A, K, B, N, 0, C, N);
  if (!relu) return;
  const std::size_t size = std::size_t(M) * N;
#pragma omp parallel for simd if (size > 100000)
  for (std::size_t i = 0; i < size; ++i) C[i] = C[i] < 0 ? 0 : C[i];
}
