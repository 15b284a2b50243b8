// Diffusion on a ring, which allocates and frees in each step what the step needs: on the device, also in the order of a
// stream, in pinned and in pageable memory; and the new field, in whose place the old one is freed.
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void flux(const double* u, double* f, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) f[i] = u[i + 1] - u[i];
}
__global__ void halve(const double* f, double* g, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) g[i] = 0.5 * f[i];
}
__global__ void add(const double* u, const double* f, double* next, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) next[i + 1] = u[i + 1] + 0.25 * (f[i + 1] - f[i]);
}

static void exchange(double* u, int n, int left, int right) {
  double* out;
  cudaMallocHost(&out, sizeof *out);
  std::vector<double> in(1);
  double* back = (double*)std::malloc(sizeof *back);
  cudaMemcpy(out, u + n, sizeof *out, cudaMemcpyDeviceToHost);
  MPI_Sendrecv(out, 1, MPI_DOUBLE, right, 0, in.data(), 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  cudaMemcpy(u, in.data(), sizeof *out, cudaMemcpyHostToDevice);
  cudaMemcpy(out, u + 1, sizeof *out, cudaMemcpyDeviceToHost);
  MPI_Sendrecv(out, 1, MPI_DOUBLE, left, 1, back, 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  cudaMemcpy(u + n + 1, back, sizeof *back, cudaMemcpyHostToDevice);
  std::free(back);
  cudaFreeHost(out);
}

int main(int argc, char** argv) {
  MPI_Init(nullptr, nullptr);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = std::atoi(argv[1]), steps = std::atoi(argv[2]), left = (rank + size - 1) % size, right = (rank + 1) % size;
  std::vector<double> host(n + 2, rank);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  double* u;
  cudaMalloc(&u, (n + 2) * sizeof *u);
  cudaMemcpy(u, host.data(), (n + 2) * sizeof *u, cudaMemcpyHostToDevice);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int t = 0; t < steps; ++t) {
    exchange(u, n, left, right);
    double *next, *f, *g;
    cudaMalloc(&next, (n + 2) * sizeof *next);
    cudaMalloc(&f, (n + 1) * sizeof *f);
    cudaMallocAsync(&g, (n + 1) * sizeof *g, stream);
    flux<<<(n + 128) / 128, 128, 0, stream>>>(u, f, n);
    halve<<<(n + 128) / 128, 128, 0, stream>>>(f, g, n);
    add<<<(n + 128) / 128, 128, 0, stream>>>(u, g, next, n);
    cudaStreamSynchronize(stream);
    cudaFreeAsync(g, stream);
    cudaFree(f);
    cudaFree(u);
    u = next;
  }
  cudaDeviceSynchronize();
  std::printf("%d: %.2f us a step\n", rank, (MPI_Wtime() - begin) / steps * 1e6);
  cudaMemcpy(host.data(), u, (n + 2) * sizeof *u, cudaMemcpyDeviceToHost);
  std::printf("%d: %.12g\n", rank, host[1]);
  MPI_Finalize();
}
