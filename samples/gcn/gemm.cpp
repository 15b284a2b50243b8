// C = A B on the CPU, row-major: C is M x N, A is M x K, B is K x N.
#include <cstddef>

void gemm_openmp(float* C, const float* A, const float* B, int M, int N, int K, double) {
#pragma omp parallel for
  for (int i = 0; i < M; ++i) {
    float* c = C + std::size_t(i) * N;
    for (int j = 0; j < N; ++j) c[j] = 0;
    for (int k = 0; k < K; ++k) {
      const float a = A[std::size_t(i) * K + k];
      for (int j = 0; j < N; ++j) c[j] += a * B[std::size_t(k) * N + j];
    }
  }
}

// Through the rows of A without their zeros, in CSR.
void gemm_spblas(float* C, const float* A, const float* B, int M, int N, int K, double, int* ptr, int* col, float* val) {
  ptr[0] = 0;
  for (int i = 0; i < M; ++i) {
    ptr[i + 1] = ptr[i];
    for (int k = 0; k < K; ++k) {
      const float a = A[std::size_t(i) * K + k];
      if (a == 0) continue;
      col[ptr[i + 1]] = k;
      val[ptr[i + 1]++] = a;
    }
  }
  for (int i = 0; i < M; ++i) {
    float* c = C + std::size_t(i) * N;
    for (int j = 0; j < N; ++j) c[j] = 0;
    for (int e = ptr[i]; e < ptr[i + 1]; ++e)
      for (int j = 0; j < N; ++j) c[j] += val[e] * B[std::size_t(col[e]) * N + j];
  }
}
