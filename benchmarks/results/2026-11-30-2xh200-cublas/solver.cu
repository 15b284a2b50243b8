// Conjugate gradients with cuBLAS for the Laplacian of a line of points, distributed over the ranks.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                              \
  do {                                                                           \
    if ((call) != 0) {                                                 \
      std::fprintf(stderr, "line %d\n", __LINE__); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                              \
    }                                                                            \
  } while (0)

__global__ void apply(double* __restrict__ q, const double* __restrict__ p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) q[i] = 2.1 * p[i + 1] - p[i] - p[i + 2];
}

static double dot(cublasHandle_t blas, const double* a, const double* b, int n) {
  double mine, all;
  CHECK(cublasDdot(blas, n, a, 1, b, 1, &mine));
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000, steps = argc > 2 ? std::atoi(argv[2]) : 20;
  int gpus = 1;
  CHECK(cudaGetDeviceCount(&gpus));
  CHECK(cudaSetDevice(rank % gpus));
  double *x, *r, *p, *q;
  CHECK(cudaMalloc(&x, n * sizeof(double)));
  CHECK(cudaMalloc(&r, n * sizeof(double)));
  CHECK(cudaMalloc(&p, (n + 2) * sizeof(double)));
  CHECK(cudaMalloc(&q, n * sizeof(double)));
  double* b = new double[n + 2]();
  for (int i = 0; i < n; ++i) b[i + 1] = std::sin(0.1 * (rank * n + i));
  CHECK(cudaMemset(x, 0, n * sizeof(double)));
  CHECK(cudaMemcpy(r, b + 1, n * sizeof(double), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(p, 0, (n + 2) * sizeof(double)));
  CHECK(cudaMemcpy(p + 1, b + 1, n * sizeof(double), cudaMemcpyHostToDevice));
  cublasHandle_t blas;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cublasCreate(&blas));
  CHECK(cublasSetStream(blas, stream));
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  const double one = 1;
  double rr = dot(blas, r, r, n);
  const double start = MPI_Wtime();
  for (int step = 0; step < steps && rr > 1e-30; ++step) {
    double first, last, halo[2] = {0, 0};
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&first, p + 1, sizeof(double), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&last, p + n, sizeof(double), cudaMemcpyDeviceToHost));
    MPI_Sendrecv(&last, 1, MPI_DOUBLE, right, 0, &halo[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&first, 1, MPI_DOUBLE, left, 1, &halo[1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(cudaMemcpy(p, &halo[0], sizeof(double), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(p + n + 1, &halo[1], sizeof(double), cudaMemcpyHostToDevice));
    apply<<<(n + 127) / 128, 128, 0, stream>>>(q, p, n);
    const double alpha = rr / dot(blas, p + 1, q, n), minus = -alpha;
    CHECK(cublasDaxpy(blas, n, &alpha, p + 1, 1, x, 1));
    CHECK(cublasDaxpy(blas, n, &minus, q, 1, r, 1));
    const double next = dot(blas, r, r, n), beta = next / rr;
    CHECK(cublasDscal(blas, n, &beta, p + 1, 1));
    CHECK(cublasDaxpy(blas, n, &one, r, 1, p + 1, 1));
    rr = next;
  }
  CHECK(cudaDeviceSynchronize());
  if (rank == 0) std::printf("residual %.6e, %.2f us a step\n", std::sqrt(rr), (MPI_Wtime() - start) / steps * 1e6);
  CHECK(cublasDestroy(blas));
  MPI_Finalize();
}
