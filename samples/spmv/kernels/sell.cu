// y = A x, A as SELL-C-sigma (Kreutzer et al., SIAM J. Sci. Comput. 36(5), 2014) with C = 32 and sigma = 512: the rows of each
// window of 512 are sorted by length; 32 of them are a slice, padded to its longest row and stored by columns, so that a
// warp's loads are contiguous.
//
// Where all 32 columns of each step of a slice are less than 65535 apart, it has them as 16 bits from the first of the step, so
// that an element takes 6 bytes instead of 8.
//
// Assumes fewer than 2^31 slots (elements of padded slices).
#include <cuda_runtime.h>

namespace {

constexpr int kWindow = 512, kHeight = 32;
constexpr int kWide = 1;              // in slice[s]: its columns are in slot_col
constexpr unsigned kPadding = 65535;  // in slot_near
__host__ __device__ inline int start_of(int slice) { return slice & -kHeight; }

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
__global__ void fill_slices(unsigned short* slot_near, int* first_col, int* slot_col, float* slot_val, int* slice,
                            const int* order, const int* row_ptr, const int* col, const float* val, int n, int slices) {
  const int s = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (s >= slices) return;
  const int place = s * kHeight + lane, row = place < n ? order[place] : -1;
  const int begin = row < 0 ? 0 : row_ptr[row], length = row < 0 ? 0 : row_ptr[row + 1] - begin;
  const int start = start_of(slice[s]), width = (start_of(slice[s + 1]) - start) / kHeight;
  bool narrow = true;
  for (int k = 0; k < width && narrow; ++k) {
    const int c = k < length ? col[begin + k] : -1;
    const unsigned low = __reduce_min_sync(~0u, unsigned(c));  // the first of each step is none of padding
    narrow = __reduce_max_sync(~0u, c) - int(low) < int(kPadding);
  }
  for (int k = 0; k < width; ++k) {
    const int slot = start + k * kHeight + lane, c = k < length ? col[begin + k] : -1;
    const int low = int(__reduce_min_sync(~0u, unsigned(c)));
    slot_val[slot] = k < length ? val[begin + k] : 0;
    if (narrow)
      slot_near[slot] = static_cast<unsigned short>(k < length ? unsigned(c - low) : kPadding);
    else
      slot_col[slot] = c;
    if (lane == 0) first_col[slot / kHeight] = low;
  }
  if (lane == 0 && !narrow) slice[s] = start | kWide;  // whoever reads it beside this drops the mark
}

// Matrices that do not stay in the L2 cache are read past it: that leaves room for x.
template <bool STREAMED, class T>
__device__ T read(const T* address) {
  return STREAMED ? __ldcs(address) : *address;
}

// A warp a slice, a thread a row.
template <bool STREAMED>
__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const float* __restrict__ x, const unsigned short* __restrict__ slot_near,
             const int* __restrict__ first_col, const int* __restrict__ slot_col, const float* __restrict__ slot_val,
             const int* __restrict__ slice, const int* __restrict__ order, int n, int slices) {
  const int s = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (s >= slices) return;
  const int from = slice[s], begin = start_of(from) + lane, end = start_of(slice[s + 1]);
  float sum = 0;
  if (from & kWide) {
#pragma unroll 4
    for (int slot = begin; slot < end; slot += kHeight) {
      const int c = read<STREAMED>(slot_col + slot);
      const float v = read<STREAMED>(slot_val + slot);
      if (c >= 0) sum += v * __ldg(x + c);
    }
  } else {
#pragma unroll 4
    for (int slot = begin; slot < end; slot += kHeight) {
      const unsigned c = read<STREAMED>(slot_near + slot);
      const int first = __ldg(first_col + slot / kHeight);
      const float v = read<STREAMED>(slot_val + slot);
      if (c != kPadding) sum += v * __ldg(x + first + c);
    }
  }
  const int place = s * kHeight + lane;
  if (place < n) y[order[place]] = sum;
}

inline int slices_of(int n) { return (n + kHeight - 1) / kHeight; }

}  // namespace

void sell_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int, int, int* order,
                  int* slice, unsigned short* slot_near, int* first_col, int* slot_col, float* slot_val, cudaStream_t stream) {
  if (n == 0) return;
  const int slices = slices_of(n);
  sort_windows<<<(n + kWindow - 1) / kWindow, kWindow, 0, stream>>>(order, row_ptr, n);
  place_slices<<<1, 1024, 0, stream>>>(slice, order, row_ptr, n, slices);
  fill_slices<<<(slices + 7) / 8, 256, 0, stream>>>(slot_near, first_col, slot_col, slot_val, slice, order, row_ptr, col, val, n,
                                                     slices);
}

void sell_multiply(float* y, const int*, const int*, const float*, const float* x, int n, int, int nnz, const int* order,
                   const int* slice, const unsigned short* slot_near, const int* first_col, const int* slot_col,
                   const float* slot_val, cudaStream_t stream) {
  if (n == 0) return;
  const int slices = slices_of(n), grid = (slices + 7) / 8;
  if (nnz > 5'000'000)  // 30 MB with 16-bit columns
    multiply<true><<<grid, 256, 0, stream>>>(y, x, slot_near, first_col, slot_col, slot_val, slice, order, n, slices);
  else
    multiply<false><<<grid, 256, 0, stream>>>(y, x, slot_near, first_col, slot_col, slot_val, slice, order, n, slices);
}
