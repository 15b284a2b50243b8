// y = A x by a segmented sum over equal shares of the non-zeros (Blelloch, Heroux and Zagha 1993). Where rows begin is a bit a
// non-zero, as in CSR5 (Liu and Vinter, ICS 2015), so that the rows need an eighth of a byte a non-zero instead of the 4 bytes
// of COO. Empty rows cost nothing but the zeros of y.
//
// Each warp takes 256 consecutive non-zeros. Rows that lie in one warp are stored; the first and the last of a warp are added
// by atomics, in an order that differs from run to run.
#include <cuda_runtime.h>

namespace {

constexpr int kWords = 8, kShare = 32 * kWords;  // of a warp: words of 32 non-zeros, non-zeros

// begins: bit k % 32 of word k / 32 is set if non-zero k is the first of its row.
__global__ void mark(unsigned* begins, const int* row_ptr, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int k = row_ptr[i];
  if (row_ptr[i + 1] > k) atomicOr(begins + k / 32, 1u << k % 32);
}

// earlier[s]: rows that begin before share s, of those that have non-zeros. One block: its threads sum up consecutive shares.
__global__ void count_before(int* earlier, const unsigned* begins, int shares) {
  __shared__ int sums[1024];
  const int part = (shares + 1023) / 1024, thread = threadIdx.x;
  const int first = thread * part < shares ? thread * part : shares, last = first + part < shares ? first + part : shares;
  int sum = 0;
  for (int w = first * kWords; w < last * kWords; ++w) sum += __popc(begins[w]);
  sums[thread] = sum;
  for (int d = 1; d < 1024; d *= 2) {
    __syncthreads();
    const int below = thread >= d ? sums[thread - d] : 0;
    __syncthreads();
    sums[thread] += below;
  }
  int at = sums[thread] - sum;
  for (int s = first; s < last; ++s) {
    earlier[s] = at;
    for (int w = 0; w < kWords; ++w) at += __popc(begins[s * kWords + w]);
  }
}

// rows: those that have non-zeros, ascending. The first non-zero of a row tells its place.
__global__ void list_rows(int* rows, const unsigned* begins, const int* earlier, const int* row_ptr, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || row_ptr[i] == row_ptr[i + 1]) return;
  const int k = row_ptr[i], share = k / kShare;
  int place = earlier[share];
  for (int w = share * kWords; w < k / 32; ++w) place += __popc(begins[w]);
  rows[place + __popc(begins[k / 32] & ((1u << k % 32) - 1))] = i;
}

// Matrices that do not stay in the L2 cache are read past it: that leaves room for x.
template <bool STREAMED>
__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const unsigned* __restrict__ begins, const int* __restrict__ earlier,
             const int* __restrict__ rows, const int* __restrict__ col, const float* __restrict__ val,
             const float* __restrict__ x, int nnz) {
  const int share = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long first = (long long)share * kShare;
  if (first >= nnz) return;
  const int start = int(first);
  int c[kWords];
  float p[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {  // all loads are in flight together
    const int k = start + i * 32 + lane;
    const bool there = k - start < nnz - start;
    c[i] = there ? (STREAMED ? __ldcs(col + k) : col[k]) : -1;
    p[i] = there ? (STREAMED ? __ldcs(val + k) : val[k]) : 0;
  }
  const unsigned mine = lane < kWords ? begins[share * kWords + lane] : 0;
  // The row that is open, of those that have non-zeros: at first, one that began in an earlier share.
  const int initial = earlier[share] - 1;
  int segment = initial;
#pragma unroll
  for (int i = 0; i < kWords; ++i) p[i] = c[i] < 0 ? 0 : p[i] * __ldg(x + c[i]);
  const unsigned up_to = ~0u >> (31 - lane);  // this lane and those below
  float carry = 0;                            // sum of the open row so far
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const unsigned word = __shfl_sync(~0u, mine, i);
    if (word & 1u) {  // the open row ended with the word before
      if (lane == 0 && i > 0) {
        if (segment == initial)
          atomicAdd(y + rows[segment], carry);
        else
          y[rows[segment]] = carry;
      }
      carry = 0;
    }
    const int head = 31 - __clz(word & up_to);  // where this lane's row begins; -1: before this word
    float sum = p[i];
    if (lane == 0 && !(word & 1u)) sum += carry;
    const int low = head < 0 ? 0 : head;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float below = __shfl_up_sync(~0u, sum, d);
      if (lane - d >= low) sum += below;
    }
    const int own = segment + __popc(word & up_to);
    if (lane < 31 && (word >> (lane + 1) & 1u)) {  // the next non-zero begins a row
      if (own == initial)
        atomicAdd(y + rows[own], sum);
      else
        y[rows[own]] = sum;
    }
    carry = __shfl_sync(~0u, sum, 31);
    segment += __popc(word);
  }
  if (lane == 0) atomicAdd(y + rows[segment], carry);
}

inline int shares_of(int nnz) { return (nnz + kShare - 1) / kShare; }

}  // namespace

void segmented_prepare(float*, const int* row_ptr, const int*, const float*, const float*, int n, int, int nnz, unsigned* begins,
                       int* earlier, int* rows, cudaStream_t stream) {
  if (n == 0 || nnz == 0) return;
  const int shares = shares_of(nnz), grid = (n + 255) / 256;
  cudaMemsetAsync(begins, 0, sizeof(unsigned) * shares * kWords, stream);
  mark<<<grid, 256, 0, stream>>>(begins, row_ptr, n);
  count_before<<<1, 1024, 0, stream>>>(earlier, begins, shares);
  list_rows<<<grid, 256, 0, stream>>>(rows, begins, earlier, row_ptr, n);
}

void segmented_multiply(float* y, const int*, const int* col, const float* val, const float* x, int n, int, int nnz,
                        const unsigned* begins, const int* earlier, const int* rows, cudaStream_t stream) {
  if (n == 0) return;
  cudaMemsetAsync(y, 0, sizeof(float) * n, stream);
  if (nnz == 0) return;
  const int grid = (shares_of(nnz) + 7) / 8;
  if (nnz > 5'000'000)  // 40 MB
    multiply<true><<<grid, 256, 0, stream>>>(y, begins, earlier, rows, col, val, x, nnz);
  else
    multiply<false><<<grid, 256, 0, stream>>>(y, begins, earlier, rows, col, val, x, nnz);
}
