// What the versions on the GPU share: aggregation over the neighbours.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

// Row i of `out`, F wide, is the sum over its neighbours of val * row of t; plus row i of `own` unless that is null; rows
// of t and own are ld apart. With `relu`, negative sums become 0. `lanes` threads a row, neighbours on consecutive
// columns.
template <int lanes>
static __global__ void aggregate_rows(float* out, const float* own, const float* t, std::size_t ld, const int* ptr,
                                      const int* col, const float* val, int n, int F, bool relu) {
  const int i = blockIdx.x * (256 / lanes) + threadIdx.x / lanes;
  if (i >= n) return;
  const int begin = ptr[i], end = ptr[i + 1];
  for (int f = threadIdx.x % lanes; f < F; f += lanes) {
    float sum = own != nullptr ? own[i * ld + f] : 0;
    for (int k = begin; k < end; ++k) sum += val[k] * t[col[k] * ld + f];
    out[std::size_t(i) * F + f] = relu && sum < 0 ? 0 : sum;
  }
}

static inline void aggregate(float* out, const float* own, const float* t, std::size_t ld, const int* ptr,
                             const int* col, const float* val, int n, int F, bool relu, cudaStream_t stream) {
  if (F <= 4) {
    aggregate_rows<4><<<(n + 63) / 64, 256, 0, stream>>>(out, own, t, ld, ptr, col, val, n, F, relu);
  } else if (F <= 8) {
    aggregate_rows<8><<<(n + 31) / 32, 256, 0, stream>>>(out, own, t, ld, ptr, col, val, n, F, relu);
  } else if (F <= 16) {
    aggregate_rows<16><<<(n + 15) / 16, 256, 0, stream>>>(out, own, t, ld, ptr, col, val, n, F, relu);
  } else {
    aggregate_rows<32><<<(n + 7) / 8, 256, 0, stream>>>(out, own, t, ld, ptr, col, val, n, F, relu);
  }
}
