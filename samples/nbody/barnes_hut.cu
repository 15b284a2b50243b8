// Barnes and Hut's method (Nature 324, 1986) on the GPU. Coordinates: x of all bodies, then y, then z.
#include <cuda_runtime.h>

#include "cells.hpp"

namespace {

constexpr int kThreads = 256, kScanners = 1024;

// Floats as integers of the same order, for the atomics.
__device__ inline int ordered(float x) {
  const int bits = __float_as_int(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
__device__ inline float unordered(int bits) { return __int_as_float(bits < 0 ? bits ^ 0x7fffffff : bits); }

// `ends`: of each coordinate the least, then the greatest.
__global__ void clear(int* ends, int* first, int leaves) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < 6) ends[i] = i < 3 ? 0x7fffffff : static_cast<int>(0x80000000u);
  if (i <= leaves) first[i] = 0;
}

__global__ void __launch_bounds__(kThreads) find_box(int* ends, const float* x, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x, own = i < n ? i : n - 1;
  for (int c = 0; c < 3; ++c) {
    int low = ordered(x[c * n + own]), high = low;
    for (int step = 16; step > 0; step /= 2) {
      const int other_low = __shfl_down_sync(~0u, low, step), other_high = __shfl_down_sync(~0u, high, step);
      low = other_low < low ? other_low : low;
      high = other_high > high ? other_high : high;
    }
    if (threadIdx.x % 32 != 0) continue;
    atomicMin(ends + c, low);
    atomicMax(ends + 3 + c, high);
  }
}

__device__ inline Box box_of(const int* ends) {
  Box box;
  box.size = 0;
  for (int c = 0; c < 3; ++c) {
    box.low[c] = unordered(ends[c]);
    const float size = unordered(ends[3 + c]) - box.low[c];
    box.size = size > box.size ? size : box.size;
  }
  box.size = box.size * 1.0001f + 1e-30f;
  return box;
}

// The leaf of each body, and its place there.
__global__ void count(int* first, int* cell_of, int* place, const int* ends, const float* x, int n, int depth) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  cell_of[i] = leaf_of(box_of(ends), depth, x[i], x[n + i], x[2 * n + i]);
  place[i] = atomicAdd(first + cell_of[i], 1);
}

// Counts into what is before them. One block.
__global__ void __launch_bounds__(kScanners) scan(int* first, int size) {
  __shared__ int before[kScanners];
  const int thread = threadIdx.x, each = (size + kScanners - 1) / kScanners;
  const int begin = thread * each < size ? thread * each : size, end = begin + each < size ? begin + each : size;
  int sum = 0;
  for (int i = begin; i < end; ++i) sum += first[i];
  before[thread] = sum;
  __syncthreads();
  for (int step = 1; step < kScanners; step *= 2) {
    const int other = thread >= step ? before[thread - step] : 0;
    __syncthreads();
    before[thread] += other;
    __syncthreads();
  }
  int upto = before[thread] - sum;
  for (int i = begin; i < end; ++i) {
    const int own = first[i];
    first[i] = upto;
    upto += own;
  }
}

__global__ void scatter(float4* sorted, int* body, const int* first, const int* cell_of, const int* place,
                        const float* x, const float* m, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const int to = first[cell_of[i]] + place[i];
  sorted[to] = make_float4(x[i], x[n + i], x[2 * n + i], m[i]);
  body[to] = i;
}

// The centre and the mass of each cell, from those of its parts.
__device__ inline float4 gathered(const float4* parts, int count) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int p = 0; p < count; ++p) {
    const float4 part = parts[p];
    sum.x += part.w * part.x;
    sum.y += part.w * part.y;
    sum.z += part.w * part.z;
    sum.w += part.w;
  }
  if (sum.w > 0) return make_float4(sum.x / sum.w, sum.y / sum.w, sum.z / sum.w, sum.w);
  return count > 0 ? make_float4(parts[0].x, parts[0].y, parts[0].z, 0) : sum;
}

__global__ void gather_leaves(float4* cells, const float4* sorted, const int* first, int leaves) {
  const int leaf = blockIdx.x * kThreads + threadIdx.x;
  if (leaf < leaves) cells[leaf] = gathered(sorted + first[leaf], first[leaf + 1] - first[leaf]);
}

__global__ void gather_cells(float4* cells, const float4* children, int count) {
  const int cell = blockIdx.x * kThreads + threadIdx.x;
  if (cell < count) cells[cell] = gathered(children + 8 * cell, 8);
}

__device__ inline void add(float (&sum)[3], float4 from, float4 at, float soft) {
  const float dx = from.x - at.x, dy = from.y - at.y, dz = from.z - at.z;
  const float root = rsqrtf(dx * dx + dy * dy + dz * dz + soft * soft), pull = from.w * root * root * root;
  sum[0] += pull * dx;
  sum[1] += pull * dy;
  sum[2] += pull * dz;
}

// A thread for each body, in the order of the leaves: neighbours go the same way through the tree.
__global__ void __launch_bounds__(kThreads)
attract(float* a, const float4* cells, const float4* sorted, const int* body, const int* first, const int* ends, int n,
        int depth, float soft, float G, float theta) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const float4 at = sorted[i];
  const float size = box_of(ends).size / theta;
  float sum[3] = {};
  int level = 0, cell = 0;
  for (bool more = true; more;) {
    const float4 of = cells[begin_of(level) + cell];
    const float dx = of.x - at.x, dy = of.y - at.y, dz = of.z - at.z;
    const float wanted = size / static_cast<float>(1 << level);
    const bool far = of.w == 0 || wanted * wanted < dx * dx + dy * dy + dz * dz;
    if (!far && level < depth) {
      ++level;
      cell *= 8;                                          // its first child
      continue;
    }
    if (far)
      add(sum, of, at, soft);
    else
      for (int j = first[cell]; j < first[cell + 1]; ++j) add(sum, sorted[j], at, soft);
    more = go_on(level, cell);
  }
  for (int c = 0; c < 3; ++c) a[c * n + body[i]] = G * sum[c];
}

__global__ void move(float* x, float* v, const float* a, int size, float step) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  v[i] += step * a[i];
  x[i] += step * v[i];
}

unsigned blocks(int threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

void barnes_hut_on_gpu(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps,
                       double step, double soft, double G, double theta, float* v, float* sorted_bodies,
                       float* all_cells, int* first, int* cell_of, int* place, int* body, int* ends,
                       cudaStream_t stream) {
  const int depth = depth_for(n), leaves = 1 << 3 * depth;
  float4* sorted = reinterpret_cast<float4*>(sorted_bodies);
  float4* cells = reinterpret_cast<float4*>(all_cells);
  cudaMemcpyAsync(x, x0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaMemcpyAsync(v, v0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  for (int s = 0; s < steps; ++s) {
    clear<<<blocks(leaves + 1 > 6 ? leaves + 1 : 6), kThreads, 0, stream>>>(ends, first, leaves);
    find_box<<<blocks(n), kThreads, 0, stream>>>(ends, x, n);
    count<<<blocks(n), kThreads, 0, stream>>>(first, cell_of, place, ends, x, n, depth);
    scan<<<1, kScanners, 0, stream>>>(first, leaves + 1);
    scatter<<<blocks(n), kThreads, 0, stream>>>(sorted, body, first, cell_of, place, x, m, n);
    gather_leaves<<<blocks(leaves), kThreads, 0, stream>>>(cells + begin_of(depth), sorted, first, leaves);
    for (int level = depth - 1; level >= 0; --level)
      gather_cells<<<blocks(1 << 3 * level), kThreads, 0, stream>>>(cells + begin_of(level),
                                                                   cells + begin_of(level + 1), 1 << 3 * level);
    attract<<<blocks(n), kThreads, 0, stream>>>(a, cells, sorted, body, first, ends, n, depth,
                                                static_cast<float>(soft), static_cast<float>(G),
                                                static_cast<float>(theta));
    move<<<blocks(3 * n), kThreads, 0, stream>>>(x, v, a, 3 * n, static_cast<float>(step));
  }
}
