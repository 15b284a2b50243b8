// C = A B through cuBLAS, on the caller's stream, row-major: C is M x N, A is M x K, B is K x N.
#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>

static cublasHandle_t handle() {
  static cublasHandle_t made = nullptr;
  if (made == nullptr && cublasCreate(&made) != CUBLAS_STATUS_SUCCESS) std::puts("cuBLAS cannot start"), std::exit(1);
  return made;
}

void gemm_cublas(float* C, const float* A, const float* B, int M, int N, int K, double, cudaStream_t stream) {
  const float one = 1, zero = 0;
  cublasSetStream(handle(), stream);
  // Row-major arrays are the transposes of column-major ones: C' = B' A'.
  cublasSgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, N, A, K, &zero, C, N);
}
