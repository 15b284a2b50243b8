// y = A x in two passes, so that neither x is gathered nor y scattered through the caches (propagation blocking: Beamer,
// Asanovic and Patterson, IPDPS 2017; for SpMV: Buono et al., ICS 2016).
//
// A is cut into strips of 8192 columns and bands of 2048 to 8192 rows, as many as keep the GPU busy. Pass 1 goes through the strips: a strip's x lies in shared memory,
// and the products are written where pass 2 reads them. Pass 2 goes through the bands and adds up in shared memory. Per non-zero,
// 6 bytes are read and 4 written, then 6 read, all in contiguous pieces, instead of 8 read and a sector of 32 bytes gathered. It
// pays if x is much larger than the L1 caches and its elements are touched in no order.
//
// The non-zeros of a strip in a band (a cell) are padded to a multiple of 8 (a group), one sector. Sums are in an order that
// differs from run to run. Assumes fewer than 2^31 slots (non-zeros with padding).
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kSide = 8192, kLowest = 2048, kGroup = 8, kParts = 4;
constexpr std::uint16_t kPadding = 0xffff;  // as row: no non-zero

inline int pieces(int n, int side) { return (n + side - 1) / side; }

// Rows of a band: a power of two.
inline int height_of(int n) {
  int height = kLowest;
  while (height < kSide && pieces(n, 2 * height) >= 600) height *= 2;
  return height;
}

// count[strip * bands + band]: non-zeros of the cell.
__global__ void count_cells(int* count, const int* row_ptr, const int* col, int n, int bands, int height) {
  const int i = blockIdx.x * 8 + threadIdx.x / 32;
  if (i >= n) return;
  for (int k = row_ptr[i] + threadIdx.x % 32; k < row_ptr[i + 1]; k += 32)
    atomicAdd(count + (size_t)(col[k] / kSide) * bands + i / height, 1);
}

// The groups of each strip (pieces = strips) or of each band (pieces = bands); a block a piece.
__global__ void count_groups(int* groups, const int* count, int stride, int step, int cells) {
  __shared__ int sums[256];
  int sum = 0;
  for (int c = threadIdx.x; c < cells; c += 256)
    sum += (count[(size_t)blockIdx.x * stride + (size_t)c * step] + kGroup - 1) / kGroup;
  sums[threadIdx.x] = sum;
  for (int d = 128; d > 0; d /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < d) sums[threadIdx.x] += sums[threadIdx.x + d];
  }
  if (threadIdx.x == 0) groups[blockIdx.x] = sums[0];
}

// In place: the sum of all before; one more at the end. One block.
__global__ void sum_up(int* groups, int pieces) {
  __shared__ int sums[1024];
  const int share = (pieces + 1023) / 1024, thread = threadIdx.x;
  const int first = thread * share < pieces ? thread * share : pieces;
  const int last = first + share < pieces ? first + share : pieces;
  int sum = 0;
  for (int i = first; i < last; ++i) sum += groups[i];
  sums[thread] = sum;
  for (int d = 1; d < 1024; d *= 2) {
    __syncthreads();
    const int before = thread >= d ? sums[thread - d] : 0;
    __syncthreads();
    sums[thread] += before;
  }
  int at = sums[thread] - sum;
  for (int i = first; i < last; ++i) {
    const int own = groups[i];
    groups[i] = at;
    at += own;
  }
  if (thread == 1023) groups[pieces] = at;
}

// at[cell]: first group of each cell, given that of its piece. A thread a piece: neighbours read neighbours where step is 1.
__global__ void place_cells(int* at, const int* groups, const int* count, int stride, int step, int cells, int pieces) {
  const int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= pieces) return;
  int next = groups[p];
  for (int c = 0; c < cells; ++c) {
    const size_t cell = (size_t)p * stride + (size_t)c * step;
    at[cell] = next;
    next += (count[cell] + kGroup - 1) / kGroup;
  }
}

// Where the products of each group go.
__global__ void link_groups(int* target, const int* from, const int* to, const int* count, long long cells) {
  const long long c = blockIdx.x * 256ll + threadIdx.x;
  if (c >= cells) return;
  const int groups = (count[c] + kGroup - 1) / kGroup;
  for (int g = 0; g < groups; ++g) target[from[c] + g] = to[c] + g;
}

// Counts the cells down while it fills them.
__global__ void fill_cells(float* slot_val, std::uint16_t* slot_col, std::uint16_t* slot_row, int* count, const int* from,
                           const int* to, const int* row_ptr, const int* col, const float* val, int n, int bands,
                           int height) {
  const int i = blockIdx.x * 8 + threadIdx.x / 32;
  if (i >= n) return;
  for (int k = row_ptr[i] + threadIdx.x % 32; k < row_ptr[i + 1]; k += 32) {
    const size_t cell = (size_t)(col[k] / kSide) * bands + i / height;
    const int place = atomicSub(count + cell, 1) - 1;
    slot_val[(size_t)from[cell] * kGroup + place] = val[k];
    slot_col[(size_t)from[cell] * kGroup + place] = std::uint16_t(col[k] % kSide);
    slot_row[(size_t)to[cell] * kGroup + place] = std::uint16_t(i % height);
  }
}

__global__ void __launch_bounds__(512)
    multiply(float* __restrict__ product, const float* __restrict__ slot_val, const std::uint16_t* __restrict__ slot_col,
             const int* __restrict__ target, const int* __restrict__ strip, const float* __restrict__ x, int cols) {
  __shared__ float piece[kSide];
  const int low = blockIdx.x * kSide, width = cols - low < kSide ? cols - low : kSide;
  for (int i = threadIdx.x; i < width; i += 512) piece[i] = x[low + i];
  __syncthreads();
  const int all = strip[blockIdx.x + 1] - strip[blockIdx.x];
  const int first = strip[blockIdx.x] + int((long long)all * blockIdx.y / kParts);
  const int last = strip[blockIdx.x] + int((long long)all * (blockIdx.y + 1) / kParts);
  // Half a group a thread: 16 bytes of values and products, 8 of columns.
#pragma unroll 2
  for (int h = 2 * first + threadIdx.x; h < 2 * last; h += 512) {
    const float4 v = __ldcs(reinterpret_cast<const float4*>(slot_val) + h);
    const ushort4 c = __ldcs(reinterpret_cast<const ushort4*>(slot_col) + h);
    const int to = 2 * target[h / 2] + h % 2;
    reinterpret_cast<float4*>(product)[to] =
        make_float4(v.x * piece[c.x], v.y * piece[c.y], v.z * piece[c.z], v.w * piece[c.w]);
  }
}

template <int HEIGHT>
__global__ void __launch_bounds__(512)
    add_up(float* __restrict__ y, const float* __restrict__ product, const std::uint16_t* __restrict__ slot_row,
           const int* __restrict__ band, int n) {
  __shared__ float piece[HEIGHT];
  const int low = blockIdx.x * HEIGHT, rows = n - low < HEIGHT ? n - low : HEIGHT;
  for (int i = threadIdx.x; i < rows; i += 512) piece[i] = 0;
  __syncthreads();
#pragma unroll 2
  for (int h = 2 * band[blockIdx.x] + threadIdx.x; h < 2 * band[blockIdx.x + 1]; h += 512) {
    const float4 p = __ldcs(reinterpret_cast<const float4*>(product) + h);
    const ushort4 r = __ldcs(reinterpret_cast<const ushort4*>(slot_row) + h);
    if (r.x != kPadding) atomicAdd(piece + r.x, p.x);
    if (r.y != kPadding) atomicAdd(piece + r.y, p.y);
    if (r.z != kPadding) atomicAdd(piece + r.z, p.z);
    if (r.w != kPadding) atomicAdd(piece + r.w, p.w);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows; i += 512) y[low + i] = piece[i];
}

}  // namespace

void binned_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int cols, int nnz,
                    float* slot_val, std::uint16_t* slot_col, std::uint16_t* slot_row, float*, int* target, int* strip,
                    int* band, int* count, int* from, int* to, cudaStream_t stream) {
  if (n == 0 || nnz == 0) return;
  const int height = height_of(n), bands = pieces(n, height), strips = pieces(cols, kSide), rows = pieces(n, 8);
  const long long cells = (long long)bands * strips;
  const size_t slots = nnz + (size_t)(kGroup - 1) * cells;
  cudaMemsetAsync(count, 0, sizeof(int) * cells, stream);
  cudaMemsetAsync(slot_val, 0, sizeof(float) * slots, stream);
  cudaMemsetAsync(slot_col, 0, sizeof(std::uint16_t) * slots, stream);
  cudaMemsetAsync(slot_row, 0xff, sizeof(std::uint16_t) * slots, stream);
  count_cells<<<rows, 256, 0, stream>>>(count, row_ptr, col, n, bands, height);
  count_groups<<<strips, 256, 0, stream>>>(strip, count, bands, 1, bands);
  count_groups<<<bands, 256, 0, stream>>>(band, count, 1, bands, strips);
  sum_up<<<1, 1024, 0, stream>>>(strip, strips);
  sum_up<<<1, 1024, 0, stream>>>(band, bands);
  place_cells<<<(strips + 31) / 32, 32, 0, stream>>>(from, strip, count, bands, 1, bands, strips);
  place_cells<<<(bands + 31) / 32, 32, 0, stream>>>(to, band, count, 1, bands, strips, bands);
  link_groups<<<int((cells + 255) / 256), 256, 0, stream>>>(target, from, to, count, cells);
  fill_cells<<<rows, 256, 0, stream>>>(slot_val, slot_col, slot_row, count, from, to, row_ptr, col, val, n, bands,
                                        height);
}

void binned_multiply(float* y, const int*, const int*, const float*, const float* x, int n, int cols, int nnz,
                     const float* slot_val, const std::uint16_t* slot_col, const std::uint16_t* slot_row, float* product,
                     const int* target, const int* strip, const int* band, const int*, const int*, const int*,
                     cudaStream_t stream) {
  if (n == 0) return;
  if (nnz == 0) {
    cudaMemsetAsync(y, 0, sizeof(float) * n, stream);
    return;
  }
  multiply<<<dim3(pieces(cols, kSide), kParts), 512, 0, stream>>>(product, slot_val, slot_col, target, strip, x, cols);
  const int height = height_of(n), bands = pieces(n, height);
  if (height == 2048)
    add_up<2048><<<bands, 512, 0, stream>>>(y, product, slot_row, band, n);
  else if (height == 4096)
    add_up<4096><<<bands, 512, 0, stream>>>(y, product, slot_row, band, n);
  else
    add_up<8192><<<bands, 512, 0, stream>>>(y, product, slot_row, band, n);
}
