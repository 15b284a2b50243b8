// C = A B on the GPU, row-major: C is M x N, A is M x K, B is K x N; with `relu`, max(C, 0).
#include <cuda_runtime.h>

#include <cstddef>

// A thread for each element of C. Blocks of 32 x 8.
__global__ void gemm_thread(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[size_t(i) * K + k] * B[size_t(k) * N + j];
  C[size_t(i) * N + j] = relu && sum < 0 ? 0 : sum;
}

// A block of 16 x 16 threads for each 64 x 64 elements of C, 4 x 4 a thread, 16 apart: neighbours read neighbours.
__global__ void __launch_bounds__(256)
gemm_tiled(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  constexpr int kTile = 64, kDepth = 16;
  __shared__ float a[kDepth][kTile + 1], b[kDepth][kTile];
  const int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sum[4][4] = {};
  for (int k = 0; k < K; k += kDepth) {
    for (int e = thread; e < kTile * kDepth; e += 256) {
      const int i = e / kDepth, ka = e % kDepth, j = e % kTile, kb = e / kTile;
      a[ka][i] = row + i < M && k + ka < K ? A[size_t(row + i) * K + k + ka] : 0;
      b[kb][j] = column + j < N && k + kb < K ? B[size_t(k + kb) * N + column + j] : 0;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      float left[4], right[4];
      for (int r = 0; r < 4; ++r) left[r] = a[d][y + 16 * r], right[r] = b[d][x + 16 * r];
      for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c) sum[r][c] += left[r] * right[c];
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) {
      const int i = row + y + 16 * r, j = column + x + 16 * c;
      if (i < M && j < N) C[size_t(i) * N + j] = relu && sum[r][c] < 0 ? 0 : sum[r][c];
    }
}

// Elements at .. at + 3 of a row of `size`; zeros behind its end, and where `there` is false.
static __device__ inline float4 four_of(const float* row, int at, int size, bool there) {
  if (there && size % 4 == 0 && at < size) return *reinterpret_cast<const float4*>(row + at);
  return make_float4(there && at < size ? row[at] : 0, there && at + 1 < size ? row[at + 1] : 0,
                     there && at + 2 < size ? row[at + 2] : 0, there && at + 3 < size ? row[at + 3] : 0);
}

// A block of 16 x 16 threads for each 128 x 128 elements of C, 8 x 8 a thread in registers: 64 multiplications for 16
// elements from shared memory. The next tiles of A and B are read during those of this one, into the other half.
__global__ void __launch_bounds__(256, 2)
gemm_registers(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  constexpr int kTile = 128, kDepth = 16, kPadded = kTile + 4;
  __shared__ __align__(16) float a[2][kDepth][kPadded], b[2][kDepth][kTile];
  const int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int a_row = thread / 4, a_at = thread % 4 * 4, b_row = thread / 32, b_at = thread % 32 * 4;
  float4 next_a[2], next_b[2];
  float sum[8][8] = {};

  const auto fetch = [&](int k) {
    for (int half = 0; half < 2; ++half) {
      const int i = row + a_row + 64 * half, d = k + b_row + 8 * half;
      next_a[half] = four_of(A + size_t(i) * K, k + a_at, K, i < M);
      next_b[half] = four_of(B + size_t(d) * N, column + b_at, N, d < K);
    }
  };
  const auto keep = [&](int into) {
    for (int half = 0; half < 2; ++half) {
      const int i = a_row + 64 * half;
      a[into][a_at][i] = next_a[half].x;
      a[into][a_at + 1][i] = next_a[half].y;
      a[into][a_at + 2][i] = next_a[half].z;
      a[into][a_at + 3][i] = next_a[half].w;
      *reinterpret_cast<float4*>(&b[into][b_row + 8 * half][b_at]) = next_b[half];
    }
  };

  fetch(0);
  keep(0);
  __syncthreads();
  for (int k = 0, now = 0; k < K; k += kDepth, now ^= 1) {
    const bool more = k + kDepth < K;
    if (more) fetch(k + kDepth);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      __align__(16) float left[8], right[8];
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float4*>(left + 4 * half) = *reinterpret_cast<const float4*>(&a[now][d][64 * half + 4 * y]);
        *reinterpret_cast<float4*>(right + 4 * half) = *reinterpret_cast<const float4*>(&b[now][d][64 * half + 4 * x]);
      }
      for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) sum[r][c] += left[r] * right[c];
    }
    if (more) keep(now ^ 1);
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r) {
    const int i = row + r / 4 * 64 + 4 * y + r % 4;
    for (int c = 0; c < 8; ++c) {
      const int j = column + c / 4 * 64 + 4 * x + c % 4;
      if (i < M && j < N) C[size_t(i) * N + j] = relu && sum[r][c] < 0 ? 0 : sum[r][c];
    }
  }
}
