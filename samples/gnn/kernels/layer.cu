// A layer on the GPU, without libraries. Parameters as in layer.dag: H is n x F, T is n x K, w is K x (1 + own) F.
#include "layer.cuh"

// out = a b, or out + a b if `add`; a is n x K, rows of b are ld apart, out is n x F. A block of 16 x 16 threads for 64
// rows and 16 * wide columns of out, 4 x wide a thread, 16 apart: neighbours read neighbours.
template <int wide>
static __global__ void __launch_bounds__(256)
multiply_tiles(float* out, const float* a, const float* b, int n, int K, int F, int ld, bool add, bool relu) {
  constexpr int kRows = 64, kColumns = 16 * wide, kDepth = 16;
  __shared__ float as[kDepth][kRows + 1], bs[kDepth][kColumns];
  const int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x;
  const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns;
  float sum[4][wide] = {};
  for (int k = 0; k < K; k += kDepth) {
    for (int e = thread; e < kRows * kDepth; e += 256) {
      const int i = e / kDepth, d = e % kDepth;
      as[d][i] = row + i < n && k + d < K ? a[std::size_t(row + i) * K + k + d] : 0;
    }
    for (int e = thread; e < kColumns * kDepth; e += 256) {
      const int j = e % kColumns, d = e / kColumns;
      bs[d][j] = column + j < F && k + d < K ? b[std::size_t(k + d) * ld + column + j] : 0;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d)
      for (int r = 0; r < 4; ++r)
        for (int c = 0; c < wide; ++c) sum[r][c] += as[d][y + 16 * r] * bs[d][x + 16 * c];
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < wide; ++c) {
      const int i = row + y + 16 * r, j = column + x + 16 * c;
      if (i >= n || j >= F) continue;
      float& to = out[std::size_t(i) * F + j];
      const float all = add ? to + sum[r][c] : sum[r][c];
      to = relu && all < 0 ? 0 : all;
    }
}

static void multiply(float* out, const float* a, const float* b, int n, int K, int F, int ld, bool add, bool relu,
                     cudaStream_t stream) {
  const dim3 block(16, 16);
  const unsigned rows = (n + 63) / 64;
  if (F <= 16) {
    multiply_tiles<1><<<dim3(rows, 1), block, 0, stream>>>(out, a, b, n, K, F, ld, add, relu);
  } else if (F <= 32) {
    multiply_tiles<2><<<dim3(rows, 1), block, 0, stream>>>(out, a, b, n, K, F, ld, add, relu);
  } else {
    multiply_tiles<4><<<dim3(rows, (F + 63) / 64), block, 0, stream>>>(out, a, b, n, K, F, ld, add, relu);
  }
}

// out = a b, a warp for a row: it reads 32 numbers of a, and multiplies by those that are not zero. 32 * wide columns of
// out in registers.
template <int wide>
static __global__ void __launch_bounds__(256)
multiply_nonzeros(float* out, const float* a, const float* b, int n, int K, int F) {
  const int i = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= n) return;
  for (int first = 0; first < F; first += 32 * wide) {
    float sum[wide] = {};
    for (int k = 0; k < K; k += 32) {
      const float mine = k + lane < K ? a[std::size_t(i) * K + k + lane] : 0;
      unsigned left = __ballot_sync(~0u, mine != 0);
      while (left != 0) {
        const int from = __ffs(left) - 1;
        left &= left - 1;
        const float value = __shfl_sync(~0u, mine, from);
        const float* row = b + std::size_t(k + from) * F + first;
        for (int c = 0; c < wide; ++c)
          if (first + 32 * c + lane < F) sum[c] += value * row[32 * c + lane];
      }
    }
    for (int c = 0; c < wide; ++c)
      if (first + 32 * c + lane < F) out[std::size_t(i) * F + first + 32 * c + lane] = sum[c];
  }
}

void gpu_transform(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n,
                   int, int K, int F, int own, bool relu, double, float* t, cudaStream_t stream) {
  const int wide = (1 + own) * F;
  multiply(t, T, w, n, K, wide, wide, false, false, stream);
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu, stream);
}

void gpu_aggregate(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n,
                   int, int K, int F, int own, bool relu, double, float* t, cudaStream_t stream) {
  const int wide = (1 + own) * F;
  aggregate(t, nullptr, T, K, ptr, col, val, n, K, false, stream);
  if (own) multiply(H, T, w, n, K, F, wide, false, false, stream);
  multiply(H, t, w + own * F, n, K, F, wide, own, relu, stream);
}

void gpu_sparse(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val, int n, int,
                int K, int F, int own, bool relu, double, float* t, cudaStream_t stream) {
  const int wide = (1 + own) * F;
  const unsigned blocks = (n + 7) / 8;
  if (wide <= 32) {
    multiply_nonzeros<1><<<blocks, 256, 0, stream>>>(t, T, w, n, K, wide);
  } else if (wide <= 64) {
    multiply_nonzeros<2><<<blocks, 256, 0, stream>>>(t, T, w, n, K, wide);
  } else {
    multiply_nonzeros<4><<<blocks, 256, 0, stream>>>(t, T, w, n, K, wide);
  }
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu, stream);
}
