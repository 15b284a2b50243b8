// A plate, of which ranks have columns: those at the borders are sent as derived datatypes, with the corners of rows. In
// each step the field is smoothed into new memory, and the old one is freed.
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void smooth(const double* u, double* v, int m, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
  if (x <= n && y <= m) {
    const double* c = u + y * (n + 2) + x;
    v[y * (n + 2) + x] = 0.25 * (c[-1] + c[1] + c[-n - 2] + c[n + 2]);
  }
}

int main(int argc, char** argv) {
  MPI_Init(nullptr, nullptr);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int m = std::atoi(argv[1]), n = std::atoi(argv[2]), steps = std::atoi(argv[3]);
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  MPI_Datatype column, face;
  MPI_Type_vector(m, 1, n + 2, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  const int sizes[] = {m + 2, n + 2}, part[] = {m, 1}, starts[] = {1, n + 1};
  MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &face);
  MPI_Type_commit(&face);
  std::vector<double> host((m + 2) * (n + 2));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = (i * 37 + rank * 11) % 101;
  double* u; std::vector<double> own(host.size());
  cudaMalloc(&u, host.size() * sizeof *u);
  cudaMemcpy(u, host.data(), host.size() * sizeof *u, cudaMemcpyHostToDevice);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int t = 0; t < steps; ++t) {
    MPI_Request requests[2];
    cudaDeviceSynchronize();
    cudaMemcpy(own.data(), u, own.size() * 8, cudaMemcpyDeviceToHost);
    MPI_Irecv(own.data(), 1, face, right, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(own.data() + n + 2, 1, column, left, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(own.data() + n + 2 + 1, 1, column, left, 0, MPI_COMM_WORLD);
    MPI_Send(own.data() + n + 2 + n, 1, column, right, 1, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    cudaMemcpy(u, own.data(), own.size() * 8, cudaMemcpyHostToDevice);
    double* v;
    cudaMalloc(&v, host.size() * sizeof *v);
    cudaMemcpy(v, u, host.size() * sizeof *v, cudaMemcpyDeviceToDevice);
    smooth<<<dim3((n + 31) / 32, (m + 7) / 8), dim3(32, 8)>>>(u, v, m, n);
    cudaFree(u);
    u = v;
  }
  cudaDeviceSynchronize();
  std::printf("%d: %.2f us a step\n", rank, (MPI_Wtime() - begin) / steps * 1e6);
  cudaMemcpy(host.data(), u, host.size() * sizeof *u, cudaMemcpyDeviceToHost);
  std::printf("%d: %.12g\n", rank, host[n + 3]);
  MPI_Finalize();
}
