// y = A x, A as SELL-C-sigma (Kreutzer et al., SIAM J. Sci. Comput. 36(5), 2014) with C = 32 and sigma = 512: the rows of each
// window of 512 are sorted by length; 32 of them are a slice, padded to its longest row and stored by columns, so that a
// warp's loads are contiguous.
//
// Assumes fewer than 2^31 slots (elements of padded slices).
#include <cuda_runtime.h>

namespace {

constexpr int kWindow = 512, kHeight = 32;

// order: rows by slice. A row's place in its window is the number of rows that come before it.
__global__ void sort_windows(int* order, const int* row_ptr, int n) {
  __shared__ int length[kWindow];
  const int base = blockIdx.x * kWindow, i = base + threadIdx.x;
  const int rows = n - base < kWindow ? n - base : kWindow;
  const int mine = i < n ? row_ptr[i + 1] - row_ptr[i] : 0;
  length[threadIdx.x] = mine;
  __syncthreads();
  if (i >= n) return;
  int place = 0;
  for (int j = 0; j < rows; ++j) place += length[j] > mine || (length[j] == mine && j < int(threadIdx.x));
  order[base + place] = i;
}

// slice[s]: where slice s starts. One block: its threads sum up consecutive shares.
__global__ void place_slices(int* slice, const int* order, const int* row_ptr, int n, int slices) {
  __shared__ int sums[1024];
  const int share = (slices + 1023) / 1024, thread = threadIdx.x;
  const int first = thread * share < slices ? thread * share : slices;
  const int last = first + share < slices ? first + share : slices;
  int sum = 0;
  for (int s = first; s < last; ++s) {
    const int longest = order[s * kHeight];  // sorted: the first row of the slice
    sum += kHeight * (row_ptr[longest + 1] - row_ptr[longest]);
  }
  sums[thread] = sum;
  for (int d = 1; d < 1024; d *= 2) {
    __syncthreads();
    const int before = thread >= d ? sums[thread - d] : 0;
    __syncthreads();
    sums[thread] += before;
  }
  int at = sums[thread] - sum;
  for (int s = first; s < last; ++s) {
    slice[s] = at;
    const int longest = order[s * kHeight];
    at += kHeight * (row_ptr[longest + 1] - row_ptr[longest]);
  }
  if (thread == 1023) slice[slices] = at;
}

// A warp a slice.
__global__ void fill_slices(int* slot_col, float* slot_val, const int* slice, const int* order, const int* row_ptr,
                            const int* col, const float* val, int n, int slices) {
  const int s = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (s >= slices) return;
  const int place = s * kHeight + lane, row = place < n ? order[place] : -1;
  const int begin = row < 0 ? 0 : row_ptr[row], length = row < 0 ? 0 : row_ptr[row + 1] - begin;
  const int width = (slice[s + 1] - slice[s]) / kHeight;
  for (int k = 0; k < width; ++k) {
    const int slot = slice[s] + k * kHeight + lane;
    slot_col[slot] = k < length ? col[begin + k] : -1;
    slot_val[slot] = k < length ? val[begin + k] : 0;
  }
}

// A warp a slice, a thread a row. Matrices that do not stay in the L2 cache are read past it: that leaves room for x.
template <bool STREAMED>
__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const float* __restrict__ x, const int* __restrict__ slot_col,
             const float* __restrict__ slot_val, const int* __restrict__ slice, const int* __restrict__ order, int n,
             int slices) {
  const int s = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (s >= slices) return;
  const int end = slice[s + 1];
  float sum = 0;
#pragma unroll 4
  for (int slot = slice[s] + lane; slot < end; slot += kHeight) {
    const int c = STREAMED ? __ldcs(slot_col + slot) : slot_col[slot];
    const float v = STREAMED ? __ldcs(slot_val + slot) : slot_val[slot];
    if (c >= 0) sum += v * __ldg(x + c);
  }
  const int place = s * kHeight + lane;
  if (place < n) y[order[place]] = sum;
}

inline int slices_of(int n) { return (n + kHeight - 1) / kHeight; }

}  // namespace

void sell_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int, int, int* order,
                  int* slice, int* slot_col, float* slot_val, cudaStream_t stream) {
  if (n == 0) return;
  const int slices = slices_of(n);
  sort_windows<<<(n + kWindow - 1) / kWindow, kWindow, 0, stream>>>(order, row_ptr, n);
  place_slices<<<1, 1024, 0, stream>>>(slice, order, row_ptr, n, slices);
  fill_slices<<<(slices + 7) / 8, 256, 0, stream>>>(slot_col, slot_val, slice, order, row_ptr, col, val, n, slices);
}

void sell_multiply(float* y, const int*, const int*, const float*, const float* x, int n, int, int nnz, const int* order,
                   const int* slice, const int* slot_col, const float* slot_val, cudaStream_t stream) {
  if (n == 0) return;
  const int slices = slices_of(n), grid = (slices + 7) / 8;
  if (nnz > 5'000'000)  // 40 MB
    multiply<true><<<grid, 256, 0, stream>>>(y, x, slot_col, slot_val, slice, order, n, slices);
  else
    multiply<false><<<grid, 256, 0, stream>>>(y, x, slot_col, slot_val, slice, order, n, slices);
}
