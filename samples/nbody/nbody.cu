// Direct sums on the GPU, in tiles in shared memory (Nyland, Harris and Prins: GPU Gems 3, chapter 31). Coordinates: x of
// all bodies, then y, then z.
#include <cuda_runtime.h>

namespace {

constexpr int kBodies = 32, kSlices = 8, kThreads = kBodies * kSlices;  // of a block; each slice adds a part of a tile

__global__ void __launch_bounds__(kThreads)
attract(float* a, const float* x, const float* m, int n, float soft, float G) {
  __shared__ float4 tile[kThreads];
  __shared__ float part[3][kThreads];
  const int thread = threadIdx.x, lane = thread % kBodies, slice = thread / kBodies;
  const int i = blockIdx.x * kBodies + lane, own = i < n ? i : n - 1;
  const float at_x = x[own], at_y = x[n + own], at_z = x[2 * n + own];
  float sum_x = 0, sum_y = 0, sum_z = 0;
  for (int begin = 0; begin < n; begin += kThreads) {
    const int j = begin + thread;
    tile[thread] = j < n ? make_float4(x[j], x[n + j], x[2 * n + j], m[j]) : make_float4(0, 0, 0, 0);
    __syncthreads();
    for (int k = slice * kBodies; k < (slice + 1) * kBodies; ++k) {
      const float4 from = tile[k];
      const float dx = from.x - at_x, dy = from.y - at_y, dz = from.z - at_z;
      const float root = rsqrtf(dx * dx + dy * dy + dz * dz + soft * soft), pull = from.w * root * root * root;
      sum_x += pull * dx;
      sum_y += pull * dy;
      sum_z += pull * dz;
    }
    __syncthreads();
  }
  part[0][thread] = sum_x;
  part[1][thread] = sum_y;
  part[2][thread] = sum_z;
  __syncthreads();
  if (slice >= 3 || i >= n) return;                       // the first three slices finish a coordinate each
  float all = 0;
  for (int k = 0; k < kSlices; ++k) all += part[slice][k * kBodies + lane];
  a[slice * n + i] = G * all;
}

__global__ void move(float* x, float* v, const float* a, int size, float step) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  v[i] += step * a[i];
  x[i] += step * v[i];
}

}  // namespace

void nbody_on_gpu(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps, double step,
                  double soft, double G, double, float* v, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>((n + kBodies - 1) / kBodies);
  const unsigned all = static_cast<unsigned>((3 * n + kThreads - 1) / kThreads);
  cudaMemcpyAsync(x, x0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaMemcpyAsync(v, v0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  for (int s = 0; s < steps; ++s) {
    attract<<<blocks, kThreads, 0, stream>>>(a, x, m, n, static_cast<float>(soft), static_cast<float>(G));
    move<<<all, kThreads, 0, stream>>>(x, v, a, 3 * n, static_cast<float>(step));
  }
}
