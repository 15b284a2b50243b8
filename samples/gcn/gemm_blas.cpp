// C = A B through OpenBLAS, row-major: C is M x N, A is M x K, B is K x N.

// Declared here, so that no header is needed. 101: row-major, 111: not transposed.
extern "C" void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                            int lda, const float* b, int ldb, float beta, float* c, int ldc);

void gemm_blas(float* C, const float* A, const float* B, int M, int N, int K, double) {
  cblas_sgemm(101, 111, 111, M, N, K, 1, A, K, B, N, 0, C, N);
}
