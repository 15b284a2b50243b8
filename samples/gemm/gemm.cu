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
