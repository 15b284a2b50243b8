// y = A x, A as triples (COO): equal shares of the non-zeros, a segmented sum over rows (Bell and Garland, SC 2009).
//
// Each warp takes 256 consecutive non-zeros. Rows that lie in one warp are stored, the first and the last of a warp are added by
// atomics, in an order that differs from run to run. Empty rows cost nothing but the zeros of y.
#include <cuda_runtime.h>

namespace {

constexpr int kShare = 256;  // non-zeros of a warp

__global__ void expand(int* row, const int* row_ptr, int n) {
  const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (i >= n) return;
  for (int k = row_ptr[i] + threadIdx.x % 32; k < row_ptr[i + 1]; k += 32) row[k] = i;
}

__global__ void __launch_bounds__(256)
    multiply(float* __restrict__ y, const int* __restrict__ row, const int* __restrict__ col, const float* __restrict__ val,
             const float* __restrict__ x, int nnz) {
  const long long first = (long long)(blockIdx.x * 8 + threadIdx.x / 32) * kShare;
  const int lane = threadIdx.x % 32;
  if (first >= nnz) return;
  const int begin = int(first), end = nnz - begin < kShare ? nnz : begin + kShare;
  const int head = row[begin], tail = row[end - 1];
  int r[kShare / 32];
  float p[kShare / 32];
#pragma unroll
  for (int i = 0; i < kShare / 32; ++i) {  // all loads are in flight together
    const int k = begin + i * 32 + lane;
    r[i] = k < end ? row[k] : tail;
    p[i] = k < end ? val[k] * __ldg(x + col[k]) : 0;
  }
  float carry = 0;  // of the row of lane 31 of the step before
  int carried = head;
#pragma unroll
  for (int i = 0; i < kShare / 32; ++i) {
    if (carried != r[i]) {
      // Only lane 0 carries; its row has ended with the step before.
      if (lane == 0) {
        if (carried == head)
          atomicAdd(y + carried, carry);
        else
          y[carried] = carry;
      }
    } else if (lane == 0) {
      p[i] += carry;
    }
    float sum = p[i];  // of this row up to this lane
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float below = __shfl_up_sync(~0u, sum, d);
      const int row_below = __shfl_up_sync(~0u, r[i], d);
      if (lane >= d && row_below == r[i]) sum += below;
    }
    const int row_above = __shfl_down_sync(~0u, r[i], 1);
    if (lane < 31 && row_above != r[i]) {
      if (r[i] == head)
        atomicAdd(y + r[i], sum);
      else
        y[r[i]] = sum;
    }
    carry = __shfl_sync(~0u, sum, 31);
    carried = __shfl_sync(~0u, r[i], 31);
  }
  if (lane == 0) atomicAdd(y + tail, carry);
}

}  // namespace

void coo_prepare(float*, const int* row_ptr, const int*, const float*, const float*, int n, int, int, int* row,
                 cudaStream_t stream) {
  if (n > 0) expand<<<(n + 7) / 8, 256, 0, stream>>>(row, row_ptr, n);
}

void coo_multiply(float* y, const int*, const int* col, const float* val, const float* x, int n, int, int nnz, int* row,
                  cudaStream_t stream) {
  if (n == 0) return;
  cudaMemsetAsync(y, 0, sizeof(float) * n, stream);
  if (nnz > 0) multiply<<<(nnz - 1) / (8 * kShare) + 1, 256, 0, stream>>>(y, row, col, val, x, nnz);
}
