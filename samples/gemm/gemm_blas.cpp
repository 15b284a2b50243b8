// C = A B through OpenBLAS, row-major: C is M x N, A is M x K, B is K x N; with `relu`, max(C, 0).
#include <cblas.h>

#include <algorithm>
#include <cstddef>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads() { return 1; }
#endif

#ifdef BLAS_SYMBOL_PREFIX  // OpenBLAS of the wheel scipy-openblas32: its functions have a prefix
#define cblas_sgemm scipy_cblas_sgemm
#define openblas_set_num_threads scipy_openblas_set_num_threads
#endif

// Parts of C are divided over the threads of OpenMP, and OpenBLAS starts none of its own: these would spin for some
// 20 ms after a product, on the cores of what runs next. Parts are as large as eight a thread allow: OpenBLAS copies
// its part of A and of B for each, which takes a quarter of the time at 128 x 512.
void gemm_blas(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  static const bool alone = (openblas_set_num_threads(1), true);
  static_cast<void>(alone);
  const bool small = static_cast<double>(M) * N * K < 1e6;
  int height = small ? M : std::min(M, 128), width = small ? N : std::min(N, 512);
  const double most = static_cast<double>(M) * N / (8.0 * omp_get_max_threads());
  while (!small && 2.0 * height * width <= most && (height < M || width < N))
    if (width >= N || (height < M && height < width)) height *= 2; else width *= 2;
#pragma omp parallel for collapse(2) schedule(dynamic) if (!small)
  for (int i = 0; i < M; i += height)
    for (int j = 0; j < N; j += width) {
      const int rows = std::min(height, M - i), columns = std::min(width, N - j);
      float* c = C + static_cast<std::size_t>(i) * N + j;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, K, 1, A + static_cast<std::size_t>(i) * K, K,
                  B + j, N, 0, c, N);
      for (int r = 0; relu && r < rows; ++r)
        for (float* x = c + static_cast<std::size_t>(r) * N; x < c + static_cast<std::size_t>(r) * N + columns; ++x)
          *x = std::max(*x, 0.0f);
    }
}
