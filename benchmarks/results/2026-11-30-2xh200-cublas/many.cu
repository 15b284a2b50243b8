#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cmath>
#include <cstdio>
#include <vector>
#define CHECK(call) do { if ((call) != 0) { std::fprintf(stderr, "line %d\n", __LINE__); return 1; } } while (0)
__global__ void step(float* v, const double* u, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] = (float)(0.9 * v[i] + 0.1 * u[i]); }
__global__ void halve(double* a) { *a *= 0.5; }
int main(int argc, char** argv) {
  const int n = 24, steps = 10;
  std::vector<double> A(n * n), u(n);
  std::vector<float> v(n);
  for (int i = 0; i < n; ++i) { u[i] = std::sin(i); v[i] = (float)std::cos(i); for (int j = 0; j < n; ++j) A[i + j * n] = 1.0 / (1 + i + j) + (i == j); }
  double *dA, *dB, *dC, *du, *dw, *alpha, *norm; float *dv, *dz;
  cublasHandle_t h, g;
  cudaStream_t s;
  CHECK(cudaStreamCreate(&s));
  CHECK(cublasCreate(&h)); CHECK(cublasCreate(&g)); CHECK(cublasSetStream(g, s)); CHECK(cublasSetPointerMode(g, CUBLAS_POINTER_MODE_DEVICE));
  CHECK(cudaMalloc(&dA, n * n * 8)); CHECK(cudaMalloc(&dB, n * n * 8)); CHECK(cudaMalloc(&dC, n * n * 8));
  CHECK(cudaMalloc(&du, n * 8)); CHECK(cudaMalloc(&dw, 2 * n * 8)); CHECK(cudaMalloc(&alpha, 8)); CHECK(cudaMalloc(&norm, 8));
  CHECK(cudaMalloc(&dv, n * 4)); CHECK(cudaMalloc(&dz, n * 4));
  CHECK(cublasSetMatrix(n, n, 8, A.data(), n, dA, n)); CHECK(cublasSetMatrix(n, n, 8, A.data(), n, dB, n));
  CHECK(cublasSetVector(n, 8, u.data(), 1, du, 1)); CHECK(cublasSetVector(n, 4, v.data(), 1, dv, 1));
  CHECK(cudaMemset(dw, 0, 2 * n * 8)); CHECK(cudaMemset(dz, 0, n * 4)); CHECK(cudaMemset(dC, 0, n * n * 8));
  const double one = 1; CHECK(cudaMemcpy(alpha, &one, 8, cudaMemcpyHostToDevice));
  double norms[2]; const double zero = 0, tenth = 0.1; float sum = 0;
  for (int t = 0; t < steps; ++t) {
    CHECK(cublasDgemm(h, CUBLAS_OP_N, CUBLAS_OP_T, n, n - 4, n, &tenth, dA, n, dB, n, &zero, dC, n));
    CHECK(cublasDgemv(h, CUBLAS_OP_T, n, n / 2, &tenth, dC, n, du, 1, &one, dw, 2));
    CHECK(cublasDsymv(h, CUBLAS_FILL_MODE_LOWER, n, &tenth, dA, n, dw, 1, &zero, du, 1));
    CHECK(cublasDger(h, 4, 5, &tenth, dw, 1, du, 1, dB + 2 * n + 3, n));
    CHECK(cublasDnrm2(h, n, du, 1, norms + 1));
    const double scale = 1 / norms[1];
    CHECK(cublasDscal(h, n, &scale, du, 1));
    CHECK(cudaStreamSynchronize(0));
    CHECK(cublasDasum(g, n, du, -1 < 0 ? 1 : 1, norm));
    halve<<<1, 1, 0, s>>>(norm);
    CHECK(cublasDaxpy(g, n / 2, norm, du + n / 2, 1, dw, 2));
    step<<<1, 32, 0, s>>>(dv, du, n);
    CHECK(cublasScopy(g, n, dv, 1, dz, -1));
    CHECK(cublasSswap(g, n / 2, dz, 2, dv + 1, 2));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cublasSasum(h, n, dz, 1, &sum));
    CHECK(cublasGetVector(n / 2, 8, dw, 2, A.data(), 1));
  }
  CHECK(cudaDeviceSynchronize());
  std::printf("%g %g\n", norms[1], sum);
}
