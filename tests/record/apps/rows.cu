// Ranks in a row. Each sends two rows to its one neighbour by two messages, from one buffer of the host and into one, and has a buffer on
// the GPU for the rank below it, and one for that above; two kernels add to one sum. Each has a part of one array, and gathers all.
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>

constexpr int kWidth = 32, kRows = 12, kHalo = 2 * kWidth;

__global__ void take(double* to, const double* from) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void step(double* next, const double* now) {
  const int i = (blockIdx.x + 2) * kWidth + threadIdx.x;
  next[i] = 0.25 * (now[i - kHalo] + now[i - kWidth] + now[i + kWidth] + now[i + kHalo]);
}
__global__ void add_first(double* sum, const double* u) { atomicAdd(sum, u[kHalo + threadIdx.x]); }
__global__ void add_last(double* sum, const double* u) { atomicAdd(&sum[0], u[(kRows - 3) * kWidth + threadIdx.x]); }

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double *now, *next, *sum, *out[2], *in[2], start[kRows * kWidth], to_send[2][kHalo], received[2][kHalo];
  cudaMalloc(&now, sizeof start);
  cudaMalloc(&next, sizeof start);
  cudaMalloc(&sum, sizeof(double));
  for (int i = 0; i < kRows * kWidth; ++i) start[i] = rank * kRows + i % 37;
  cudaMemcpy(now, start, sizeof start, cudaMemcpyHostToDevice);
  cudaMemcpy(next, start, sizeof start, cudaMemcpyHostToDevice);
  for (int side = 0; side < 2; ++side) {
    cudaMalloc(&out[side], sizeof to_send[0]);
    cudaMalloc(&in[side], sizeof received[0]);
    cudaMemset(in[side], 0, sizeof received[0]);
  }
  double *all, parts[16];
  int counts[4], places[4], whole = 0;
  for (int i = 0; i < size; ++i) {
    places[i] = whole;
    whole += counts[i] = 2 + i;
  }
  double *one, *ones;
  cudaMalloc(&one, sizeof(double));
  cudaMalloc(&ones, size * sizeof(double));
  cudaMemset(ones, 0, size * sizeof(double));
  cudaMemset(one, 0, sizeof(double));
  cudaMalloc(&all, whole * sizeof(double));
  cudaMemset(all, 0, whole * sizeof(double));
  const int peer[2] = {rank - 1, rank + 1 < size ? rank + 1 : -1};
  for (int t = 0; t < 10; ++t) {
    MPI_Request requests[8];
    int count = 0;
    for (int side = 0; side < 2; ++side) {
      if (peer[side] < 0) continue;
      take<<<1, kHalo>>>(out[side], now + (side == 0 ? kHalo : (kRows - 4) * kWidth));
      cudaMemcpy(to_send[side], out[side], sizeof to_send[0], cudaMemcpyDeviceToHost);
      cudaMemcpy(received[side], in[side], sizeof received[0], cudaMemcpyDeviceToHost);
      for (int row = 0; row < 2; ++row) {
        MPI_Isend(to_send[side] + row * kWidth, kWidth, MPI_DOUBLE, peer[side], row, MPI_COMM_WORLD, &requests[count++]);
        MPI_Irecv(received[side] + row * kWidth, kWidth, MPI_DOUBLE, peer[side], row, MPI_COMM_WORLD, &requests[count++]);
      }
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int side = 0; side < 2; ++side) {
      if (peer[side] < 0) continue;
      cudaMemcpy(in[side], received[side], sizeof received[0], cudaMemcpyHostToDevice);
      take<<<1, kHalo>>>(now + (side == 0 ? 0 : (kRows - 2) * kWidth), in[side]);
    }
    cudaMemset(sum, 0, sizeof(double));
    add_first<<<1, kWidth>>>(sum, now);
    add_last<<<1, kWidth>>>(sum, now);
    step<<<kRows - 4, kWidth>>>(next, now);
    take<<<1, counts[rank]>>>(all + places[rank], next + kHalo);
    cudaMemcpy(parts, all, whole * sizeof(double), cudaMemcpyDeviceToHost);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
    cudaMemcpy(all, parts, whole * sizeof(double), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    MPI_Scatter(next, 1, MPI_DOUBLE, one, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Gather(one, 1, MPI_DOUBLE, ones, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);  // sends what it has just received
    double* swap = now;
    now = next;
    next = swap;
  }
  double total;
  cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost);
  std::printf("%g\n", total);
  MPI_Finalize();
}
