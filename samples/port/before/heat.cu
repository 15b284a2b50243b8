// The heat equation on a plate, explicit Euler: every point becomes the mean of its four neighbours.
//
// Each rank has `rows` rows of `nx` points, between two halo rows. The border of the plate keeps its temperature. The
// rows next to the halo are exchanged through buffers on the host in every step.
//
//   mpiexec -n 2 ./heat [nx rows steps]
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define CHECK(call)                                                                 \
  do {                                                                              \
    cudaError_t status = (call);                                                    \
    if (status != cudaSuccess) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                 \
    }                                                                               \
  } while (0)

// `next` has rows x nx points; `now` has these, with a row above and a row below.
__global__ void heat_step(double* next, const double* now, int rows, int nx) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= rows || j >= nx) return;
  const double* c = now + (size_t)(i + 1) * nx + j;
  double value = c[0];
  if (j > 0 && j < nx - 1) value = 0.25 * (c[-1] + c[1] + c[-nx] + c[nx]);
  next[(size_t)i * nx + j] = value;
}

// The initial temperature of a point of the plate.
static double initial(long i, long j) { return (i * 7919 + j * 104729) % 1000 / 1000.0; }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, devices;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(cudaGetDeviceCount(&devices));
  CHECK(cudaSetDevice(rank % devices));

  const int nx = argc > 1 ? std::atoi(argv[1]) : 2048;
  const int rows = argc > 2 ? std::atoi(argv[2]) : 1024;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 1000;
  const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
  const size_t points = (size_t)(rows + 2) * nx, row = nx * sizeof(double);

  std::vector<double> plate(points);
  for (long i = 0; i < rows + 2; ++i)
    for (long j = 0; j < nx; ++j) plate[i * nx + j] = initial((long)rank * rows + i, j);
  double *now, *next;
  CHECK(cudaMalloc(&now, points * sizeof(double)));
  CHECK(cudaMalloc(&next, points * sizeof(double)));
  CHECK(cudaMemcpy(now, plate.data(), points * sizeof(double), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(next, plate.data(), points * sizeof(double), cudaMemcpyHostToDevice));
  std::vector<double> to_up(nx), to_down(nx), from_up(nx), from_down(nx);

  const dim3 block(32, 8), grid((nx + 31) / 32, (rows + 7) / 8);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int t = 0; t < steps; ++t) {
    CHECK(cudaMemcpy(to_up.data(), now + nx, row, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(to_down.data(), now + (size_t)rows * nx, row, cudaMemcpyDeviceToHost));
    MPI_Sendrecv(to_up.data(), nx, MPI_DOUBLE, up, 0, from_down.data(), nx, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(to_down.data(), nx, MPI_DOUBLE, down, 1, from_up.data(), nx, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (up != MPI_PROC_NULL) CHECK(cudaMemcpy(now, from_up.data(), row, cudaMemcpyHostToDevice));
    if (down != MPI_PROC_NULL)
      CHECK(cudaMemcpy(now + (size_t)(rows + 1) * nx, from_down.data(), row, cudaMemcpyHostToDevice));
    heat_step<<<grid, block>>>(next + nx, now, rows, nx);
    CHECK(cudaGetLastError());
    std::swap(now, next);
  }
  CHECK(cudaDeviceSynchronize());
  double seconds = MPI_Wtime() - start, slowest;
  MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

  CHECK(cudaMemcpy(plate.data(), now, points * sizeof(double), cudaMemcpyDeviceToHost));
  double sum = 0, total;
  for (size_t k = nx; k < points - nx; ++k) sum += plate[k];
  MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("%d ranks, %d x %d points each, %d steps: %.3f us a step, mean temperature %.12f\n", size, rows, nx, steps,
                slowest / steps * 1e6, total / ((double)size * rows * nx));
  CHECK(cudaFree(now));
  CHECK(cudaFree(next));
  MPI_Finalize();
}
