// Waves on a plate, of fourth order: the rows at the border first, on a stream of their own, then their messages during
// the inner rows. Page-locked buffers, asynchronous copies, events between the streams, a constant in __constant__ memory.
#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

struct Plate {
  float *before, *now;
  int nx, rows;
};

constexpr int kHalo = 2;
__constant__ float speed;

__global__ void rows_of(float* u, const float* v, int nx, int first, int last) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const int i = first + blockIdx.y * blockDim.y + threadIdx.y;
  if (j < kHalo || j >= nx - kHalo || i >= last) return;
  const int c = (i + kHalo) * nx + j;
  const float x = -v[c - 2] + 16 * v[c - 1] - 30 * v[c] + 16 * v[c + 1] - v[c + 2];
  const float y = -v[c - 2 * nx] + 16 * v[c - nx] - 30 * v[c] + 16 * v[c + nx] - v[c + 2 * nx];
  u[c] = 2 * v[c] - u[c] + speed * (x + y);
}

static void compute(const Plate& p, int first, int last, cudaStream_t stream) {
  const dim3 block(32, 4), grid((p.nx + 31) / 32, (last - first + 3) / 4);
  rows_of<<<grid, block, 0, stream>>>(p.before, p.now, p.nx, first, last);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int nx = argc > 1 ? std::atoi(argv[1]) : 256, rows = argc > 2 ? std::atoi(argv[2]) : 128;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 50;
  Plate p{nullptr, nullptr, nx, rows};
  const size_t bytes = sizeof(float) * (rows + 2 * kHalo) * nx, halo = sizeof(float) * kHalo * nx;
  cudaMalloc((void**)&p.before, bytes);
  cudaMalloc((void**)&p.now, bytes);
  float* start = (float*)calloc(bytes, 1);
  if (rank == 0) start[(rows / 2) * nx + nx / 2] = 1;
  cudaMemcpy(p.before, start, bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(p.now, start, bytes, cudaMemcpyHostToDevice);
  const float factor = 0.01f;
  cudaMemcpyToSymbol(speed, &factor, sizeof factor);
  float *out[2], *in[2];
  for (int s = 0; s < 2; ++s) {
    cudaMallocHost(&out[s], halo);
    cudaHostAlloc(&in[s], halo, cudaHostAllocDefault);
  }
  cudaStream_t border, inner;
  cudaStreamCreate(&border);
  cudaStreamCreate(&inner);
  cudaEvent_t done;
  cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  const int peer[2] = {rank > 0 ? rank - 1 : MPI_PROC_NULL, rank + 1 < size ? rank + 1 : MPI_PROC_NULL};

  cudaDeviceSynchronize();
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int t = 0; t < steps; ++t) {
    MPI_Request requests[4];
    for (int s = 0; s < 2; ++s)
      MPI_Irecv(in[s], kHalo * nx, MPI_FLOAT, peer[s], 1 - s, MPI_COMM_WORLD, &requests[s]);
    cudaStreamWaitEvent(border, done, 0);
    compute(p, 0, kHalo, border);
    compute(p, rows - kHalo, rows, border);
    cudaMemcpyAsync(out[0], p.before + kHalo * nx, halo, cudaMemcpyDeviceToHost, border);
    cudaMemcpyAsync(out[1], p.before + (size_t)rows * nx, halo, cudaMemcpyDeviceToHost, border);
    compute(p, kHalo, rows - kHalo, inner);
    cudaStreamSynchronize(border);
    for (int s = 0; s < 2; ++s) MPI_Isend(out[s], kHalo * nx, MPI_FLOAT, peer[s], s, MPI_COMM_WORLD, &requests[2 + s]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    if (peer[0] != MPI_PROC_NULL) cudaMemcpyAsync(p.before, in[0], halo, cudaMemcpyHostToDevice, border);
    if (peer[1] != MPI_PROC_NULL)
      cudaMemcpyAsync(p.before + (size_t)(rows + kHalo) * nx, in[1], halo, cudaMemcpyHostToDevice, border);
    cudaStreamSynchronize(border);
    cudaEventRecord(done, inner);
    cudaStreamWaitEvent(inner, done, 0);
    cudaStreamSynchronize(inner);
    float* swap = p.before;
    p.before = p.now;
    p.now = swap;
  }
  cudaDeviceSynchronize();
  if (rank == 0) std::printf("%.3f us a step\n", (MPI_Wtime() - begin) / steps * 1e6);
  MPI_Finalize();
}
