// A plate, of which ranks have columns: those at the borders are sent as derived datatypes. What a step needs it allocates
// and frees: in the order of a stream, in pinned and in pageable memory; and the new field, for which it frees the old one.
// A line is on the host from one step to the next, in two vectors that alternate.
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <utility>
#include <vector>

__global__ void smooth(const double* u, double* f, int m, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
  if (x <= n && y <= m) {
    const double* c = u + y * (n + 2) + x;
    f[y * (n + 2) + x] = 0.25 * (c[-1] + c[1] + c[-n - 2] + c[n + 2]) - *c;
  }
}
__global__ void add(const double* u, const double* f, double* v, int m, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x > n + 1 || y > m + 1) return;
  const int i = y * (n + 2) + x;
  v[i] = x > 0 && x <= n && y > 0 && y <= m ? u[i] + f[i] : u[i];
}

// The corner of the other rank, through buffers of the host that are made for it.
static void corner(double* u, int last, int other) {
  double* out;
  cudaMallocHost(&out, sizeof *out);
  std::vector<double> in(1);
  cudaMemcpy(out, u + last, sizeof *out, cudaMemcpyDeviceToHost);
  MPI_Sendrecv(out, 1, MPI_DOUBLE, other, 2, in.data(), 1, MPI_DOUBLE, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  cudaMemcpy(u, in.data(), sizeof *out, cudaMemcpyHostToDevice);
  cudaFreeHost(out);
}

__global__ void relax(const double* a, double* b, int n) {
  const int i = threadIdx.x + 1;
  if (i < n - 1) b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1];
}
static void line(std::vector<double>& now, std::vector<double>& next) {
  const std::size_t bytes = now.size() * sizeof(double);
  double *a, *b;
  cudaMalloc(&a, bytes);
  cudaMalloc(&b, bytes);
  cudaMemcpy(a, now.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(b, next.data(), bytes, cudaMemcpyHostToDevice);
  relax<<<1, 64>>>(a, b, now.size());
  cudaMemcpy(next.data(), b, bytes, cudaMemcpyDeviceToHost);
  cudaFree(a);
  cudaFree(b);
  std::swap(now, next);
}

int main() {
  MPI_Init(nullptr, nullptr);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int m = 16, n = 24;
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  MPI_Datatype column, face;
  MPI_Type_vector(m, 1, n + 2, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  const int sizes[] = {1, m + 2, n + 2}, part[] = {1, m, 1}, starts[] = {0, 1, n + 1};
  MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &face);
  MPI_Type_commit(&face);
  std::vector<double> host((m + 2) * (n + 2));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = (i * 37 + rank * 11) % 101;
  const std::size_t bytes = host.size() * sizeof(double);
  std::vector<double> now(host.begin(), host.begin() + 40), next = now;
  double* u;
  cudaMalloc(&u, bytes);
  cudaMemcpy(u, host.data(), bytes, cudaMemcpyHostToDevice);
  for (int t = 0; t < 12; ++t) {
    MPI_Request requests[2];
    corner(u, host.size() - n - 4, size - 1 - rank);
    MPI_Irecv(u, 1, face, right, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(u + n + 2, 1, column, left, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(u + n + 2 + 1, 1, column, left, 0, MPI_COMM_WORLD);
    MPI_Send(u + n + 2 + n, 1, column, right, 1, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    double *v, *f;
    cudaMalloc(&v, bytes);
    cudaMallocAsync(&f, bytes, nullptr);
    smooth<<<dim3(1, 2), dim3(32, 8)>>>(u, f, m, n);
    add<<<dim3(1, 3), dim3(32, 8)>>>(u, f, v, m, n);
    cudaFreeAsync(f, nullptr);
    cudaFree(u);
    u = v;
    line(now, next);
  }
  cudaMemcpy(host.data(), u, bytes, cudaMemcpyDeviceToHost);
  std::printf("%d: %.12g %.12g\n", rank, host[n + 3], now[1]);
  MPI_Finalize();
}
