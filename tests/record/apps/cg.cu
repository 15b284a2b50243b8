// Conjugate gradients for the Laplacian of a line of points, distributed over the ranks: messages through the host, dot
// products by a reduction of two kernels or by cuBLAS, their sums by MPI_Allreduce, and alpha and beta on the host.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                              \
  do {                                                                           \
    const int status = (call);                                                   \
    if (status != 0) {                                                           \
      std::fprintf(stderr, "error %d at line %d\n", status, __LINE__);           \
      MPI_Abort(MPI_COMM_WORLD, 1);                                              \
    }                                                                            \
  } while (0)

constexpr int kBlock = 128;

// p has a halo point at each end.
__global__ void apply(double* __restrict__ q, const double* __restrict__ p, double middle, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) q[i] = middle * p[i + 1] - p[i] - p[i + 2];
}
__global__ void dot_blocks(double* sums, const double* a, double* b, int n) {
  __shared__ double part[kBlock];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? a[i] * b[i] : 0;
  __syncthreads();
  for (int step = kBlock / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
__global__ void sum(double* out, const double* sums, int count) {
  double total = 0;
  for (int i = 0; i < count; ++i) total += sums[i];
  *out = total;
}
__global__ void scaled(double* y, const double* by) { y[threadIdx.x] *= by[threadIdx.x]; }
__global__ void xpby(double* p, const double* r, double b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = r[i] + b * p[i];
}

static double* sums;
static double* dot_out;
static cublasHandle_t blas;

static double dot(const double* a, double* b, int n) {
  const int blocks = (n + kBlock - 1) / kBlock;
  dot_blocks<<<blocks, kBlock>>>(sums, a, b, n);
  sum<<<1, 1>>>(dot_out, sums, blocks);
  double mine, all;
  CHECK(cudaMemcpy(&mine, dot_out, sizeof(double), cudaMemcpyDeviceToHost));
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}
static double dot_by_library(const double* a, const double* b, int n) {
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
  const int blocks = (n + kBlock - 1) / kBlock;
  double *x, *r, *p, *q;
  CHECK(cudaMalloc(&x, n * sizeof(double)));
  CHECK(cudaMalloc(&r, n * sizeof(double)));
  CHECK(cudaMalloc(&p, (n + 2) * sizeof(double)));
  CHECK(cudaMalloc(&q, n * sizeof(double)));
  CHECK(cudaMalloc(&sums, blocks * sizeof(double)));
  CHECK(cudaMalloc(&dot_out, sizeof(double)));
  double* b = new double[n + 2]();
  for (int i = 0; i < n; ++i) b[i + 1] = std::sin(0.1 * (rank * n + i));
  CHECK(cudaMemset(x, 0, n * sizeof(double)));
  CHECK(cudaMemcpy(r, b + 1, n * sizeof(double), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(p, b, (n + 2) * sizeof(double), cudaMemcpyHostToDevice));

  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  double rr = dot(r, r, n);
  double weights[20], *scale, *column;
  const double one = 1;
  CHECK(cublasCreate(&blas));
  CHECK(cudaMalloc(&scale, sizeof weights));
  CHECK(cudaMalloc(&column, sizeof(double)));
  CHECK(cudaMemcpy(column, &one, sizeof(double), cudaMemcpyHostToDevice));
  for (int step = 0; step < steps && rr > 1e-30; ++step) {
    double first, last, halo[2] = {0, 0};
    for (int i = 0; i < 20; ++i) weights[i] = 1 + 1e-9 * step * i;
    CHECK(cudaMemcpy(scale, weights, sizeof weights, cudaMemcpyHostToDevice));
    scaled<<<1, 20>>>(r, scale);
    CHECK(cudaMemcpy(&first, p + 1, sizeof(double), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&last, p + n, sizeof(double), cudaMemcpyDeviceToHost));
    MPI_Request requests[4];
    MPI_Irecv(&halo[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&halo[1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&last, 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&first, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    CHECK(cudaMemcpy(p, &halo[0], sizeof(double), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(p + n + 1, &halo[1], sizeof(double), cudaMemcpyHostToDevice));
    apply<<<blocks, kBlock>>>(q, p, 2.1 + 1e-9 * std::sin(step), n);
    const double alpha = rr / dot_by_library(p + 1, q, n), minus = -alpha;
    CHECK(cublasDgemv(blas, CUBLAS_OP_N, n, 1, &alpha, p + 1, n, column, 1, &one, x, 1));  // x += alpha p
    CHECK(cublasDaxpy(blas, n, &minus, q, 1, r, 1));
    const double next = dot(r, r, n);
    xpby<<<blocks, kBlock>>>(p + 1, r, next / rr, n);
    rr = next;
    CHECK(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(cudaDeviceSynchronize());
  if (rank == 0) std::printf("residual %.6e\n", std::sqrt(rr));
  MPI_Finalize();
}
