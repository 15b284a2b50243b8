// y = A x, A as ELL: element k of row i is at k * n + i, and all rows are as long as the longest. A thread a row, so that a
// warp's loads are contiguous.
#include <cuda_runtime.h>

namespace {

__global__ void find_width(int* width, const int* row_ptr, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int longest = __reduce_max_sync(~0u, i < n ? row_ptr[i + 1] - row_ptr[i] : 0);
  if (threadIdx.x % 32 == 0) atomicMax(width, longest);
}

__global__ void fill(int* ell_col, float* ell_val, const int* width, const int* row_ptr, const int* col, const float* val,
                     int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int begin = row_ptr[i], length = row_ptr[i + 1] - begin;
  for (int k = 0; k < width[0]; ++k) {
    ell_col[(size_t)k * n + i] = k < length ? col[begin + k] : -1;
    ell_val[(size_t)k * n + i] = k < length ? val[begin + k] : 0;
  }
}

// Matrices that do not stay in the L2 cache are read past it: that leaves room for x.
template <bool STREAMED>
__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const float* __restrict__ x, const int* __restrict__ ell_col,
             const float* __restrict__ ell_val, const int* __restrict__ width, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x, last = width[0];
  if (i >= n) return;
  float sum = 0;
#pragma unroll 4
  for (int k = 0; k < last; ++k) {
    const size_t at = (size_t)k * n + i;
    const int c = STREAMED ? __ldcs(ell_col + at) : ell_col[at];
    const float v = STREAMED ? __ldcs(ell_val + at) : ell_val[at];
    if (c >= 0) sum += v * __ldg(x + c);
  }
  y[i] = sum;
}

}  // namespace

void ell_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int, int, int* width,
                 int* ell_col, float* ell_val, cudaStream_t stream) {
  if (n == 0) return;
  const int grid = (n + 255) / 256;
  cudaMemsetAsync(width, 0, sizeof(int), stream);
  find_width<<<grid, 256, 0, stream>>>(width, row_ptr, n);
  fill<<<grid, 256, 0, stream>>>(ell_col, ell_val, width, row_ptr, col, val, n);
}

void ell_multiply(float* y, const int*, const int*, const float*, const float* x, int n, int, int nnz, const int* width,
                  const int* ell_col, const float* ell_val, cudaStream_t stream) {
  if (n == 0) return;
  const int grid = (n + 255) / 256;
  if (nnz > 5'000'000)  // 40 MB
    multiply<true><<<grid, 256, 0, stream>>>(y, x, ell_col, ell_val, width, n);
  else
    multiply<false><<<grid, 256, 0, stream>>>(y, x, ell_col, ell_val, width, n);
}
