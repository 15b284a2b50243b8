// y = A x, A as its diagonals (DIA): dia[d * n + i] is the element of row i in column i + offset[d].
//
// Columns outside of the matrix, and elements that are 0, are not multiplied: an infinity in x stays in its rows.
#include <cuda_runtime.h>

namespace {

__global__ void mark(unsigned char* seen, const int* row_ptr, const int* col, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int k = row_ptr[i]; k < row_ptr[i + 1]; ++k) seen[(long long)col[k] - i + n - 1] = 1;
}

// offset: the marked diagonals, ascending. One block: its threads list consecutive shares.
__global__ void list_diagonals(int* number, int* offset, const unsigned char* seen, int n, int all) {
  __shared__ int sums[1024];
  const int share = (all + 1023) / 1024, thread = threadIdx.x;
  const int first = thread * share < all ? thread * share : all, last = first + share < all ? first + share : all;
  int count = 0;
  for (int i = first; i < last; ++i) count += seen[i];
  sums[thread] = count;
  for (int d = 1; d < 1024; d *= 2) {
    __syncthreads();
    const int before = thread >= d ? sums[thread - d] : 0;
    __syncthreads();
    sums[thread] += before;
  }
  int at = sums[thread] - count;
  for (int i = first; i < last; ++i)
    if (seen[i]) offset[at++] = i - (n - 1);
  if (thread == 1023) number[0] = at;
}

// A thread a row, so that elements of equal place add up without atomics.
__global__ void fill(float* dia, const int* number, const int* offset, const int* row_ptr, const int* col, const float* val,
                     int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, diagonals = number[0];
  if (i >= n) return;
  for (int d = 0; d < diagonals; ++d) dia[(size_t)d * n + i] = 0;
  for (int k = row_ptr[i]; k < row_ptr[i + 1]; ++k) {
    int low = 0, high = diagonals - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (offset[middle] < col[k] - i)
        low = middle + 1;
      else
        high = middle;
    }
    dia[(size_t)low * n + i] += val[k];
  }
}

__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const float* __restrict__ x, const float* __restrict__ dia, const int* __restrict__ number,
             const int* __restrict__ offset, int n, int cols) {
  const int i = blockIdx.x * 256 + threadIdx.x, diagonals = number[0];
  if (i >= n) return;
  float sum = 0;
#pragma unroll 4
  for (int d = 0; d < diagonals; ++d) {
    const int j = i + offset[d];
    const float v = dia[(size_t)d * n + i];
    if (0 <= j && j < cols && v != 0) sum += v * __ldg(x + j);
  }
  y[i] = sum;
}

}  // namespace

// There is room for the diagonals that have elements.
void dia_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int cols, int, int* number,
                 int* offset, float* dia, unsigned char* seen, cudaStream_t stream) {
  if (n == 0) return;
  const int all = n + cols - 1, grid = (n + 255) / 256;
  cudaMemsetAsync(seen, 0, all, stream);
  mark<<<grid, 256, 0, stream>>>(seen, row_ptr, col, n);
  list_diagonals<<<1, 1024, 0, stream>>>(number, offset, seen, n, all);
  fill<<<grid, 256, 0, stream>>>(dia, number, offset, row_ptr, col, val, n);
}

void dia_multiply(float* y, const int*, const int*, const float*, const float* x, int n, int cols, int, const int* number,
                  const int* offset, const float* dia, const unsigned char*, cudaStream_t stream) {
  if (n > 0) multiply<<<(n + 255) / 256, 256, 0, stream>>>(y, x, dia, number, offset, n, cols);
}
