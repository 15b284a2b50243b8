// y = A x, A in CSR, by merge path (Merrill and Garland, "Merge-based Parallel Sparse Matrix-Vector Multiplication", SC 2016).
//
// The ends of the rows and the non-zeros are merged into one list of n + nnz items. Each block takes an equal share of it (a
// tile), each thread an equal share of the tile, so that neither a row of all non-zeros nor a million empty rows makes one
// thread slower than the others. A tile's sum of its last, unfinished row is carried to the tile in which that row ends.
//
// Assumes n + nnz < 2^31 - 4096. Rows that lie in more than 32 tiles are summed in an order that differs from run to run.
#include <cuda_runtime.h>

#include <climits>

namespace {

constexpr int kSmall = 128 * 4, kLarge = 256 * 7;  // items of a tile
constexpr long long kFew = 1 << 20;                 // up to so many items, small tiles: they fill more of the GPU

inline int tile_of(int n, int nnz) { return (long long)n + nnz <= kFew ? kSmall : kLarge; }
inline int tiles_of(int n, int nnz) {
  const int tile = tile_of(n, nnz);
  return int(((long long)n + nnz + tile - 1) / tile);
}

// How many rows end before item `diagonal` of the merged list, given the ends of `rows` rows.
__device__ inline int rows_before(const int* ends, int diagonal, int rows, int nonzeros) {
  int low = diagonal > nonzeros ? diagonal - nonzeros : 0, high = diagonal < rows ? diagonal : rows;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] <= diagonal - middle - 1)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

__global__ void find_starts(int* start, const int* row_ptr, int n, int nnz, int tile, int tiles) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t > tiles) return;
  const long long items = (long long)n + nnz, first = (long long)t * tile;
  start[t] = rows_before(row_ptr + 1, int(first < items ? first : items), n, nnz);
}

// Sums that end in a thread: does a row end in it, and what it has of the row after its last end.
struct Tail {
  int ended;
  float sum;
};
__device__ inline Tail joined(Tail left, Tail right) {
  return {left.ended | right.ended, right.ended ? right.sum : left.sum + right.sum};
}
__device__ inline Tail from_below(Tail tail, int distance) {
  return {__shfl_up_sync(~0u, tail.ended, distance), __shfl_up_sync(~0u, tail.sum, distance)};
}

template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS)
    merge_tiles(float* __restrict__ y, const int* __restrict__ row_ptr, const int* __restrict__ col,
                const float* __restrict__ val, const float* __restrict__ x, int n, int nnz, const int* __restrict__ start,
                int* __restrict__ carry_row, float* __restrict__ carry_sum) {
  constexpr int kTile = THREADS * ITEMS, kWarps = THREADS / 32;
  __shared__ float product[kTile], out[kTile];
  __shared__ int ends[kTile + 1];
  __shared__ Tail of_warp[kWarps];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const long long items = (long long)n + nnz, first = (long long)blockIdx.x * kTile;
  const int here = int(first), count = int(items - first < kTile ? items - first : kTile);
  const int row0 = start[blockIdx.x], rows = start[blockIdx.x + 1] - row0;
  const int k0 = here - row0, nonzeros = count - rows;

  int column[ITEMS];
  float value[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {  // all loads of a thread are in flight together
    const int k = i * THREADS + thread;
    column[i] = k < nonzeros ? col[k0 + k] : 0;
    value[i] = k < nonzeros ? val[k0 + k] : 0;
  }
  for (int i = thread; i < rows; i += THREADS) ends[i] = row_ptr[row0 + i + 1] - k0;
  if (thread == 0) ends[rows] = INT_MAX;  // the last row does not end here
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int k = i * THREADS + thread;
    if (k < nonzeros) product[k] = value[i] * __ldg(x + column[i]);
  }
  __syncthreads();

  const int item = thread * ITEMS < count ? thread * ITEMS : count, stop = item + ITEMS < count ? item + ITEMS : count;
  int row = rows_before(ends, item, rows, nonzeros), k = item - row;
  int head = -1;  // the first row that ends in this thread: earlier threads may have a part of it
  float head_sum = 0;
  Tail tail{0, 0};
  for (int i = item; i < stop; ++i) {
    if (k < ends[row]) {
      tail.sum += product[k++];
    } else {
      if (head < 0) {
        head = row;
        head_sum = tail.sum;
      } else {
        out[row] = tail.sum;
      }
      tail = {1, 0};
      ++row;
    }
  }

  Tail scanned = tail;  // over this warp, then over the block
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const Tail below = from_below(scanned, d);
    if (lane >= d) scanned = joined(below, scanned);
  }
  if (lane == 31) of_warp[warp] = scanned;
  Tail before = from_below(scanned, 1);
  if (lane == 0) before = {0, 0};
  __syncthreads();
  Tail warps_before{0, 0};
  for (int w = 0; w < warp; ++w) warps_before = joined(warps_before, of_warp[w]);
  before = joined(warps_before, before);
  if (head >= 0) out[head] = before.sum + head_sum;
  if (thread == THREADS - 1) {
    carry_row[blockIdx.x] = row0 + rows;
    carry_sum[blockIdx.x] = joined(warps_before, scanned).sum;
  }
  __syncthreads();
  for (int i = thread; i < rows; i += THREADS) y[row0 + i] = out[i];
}

// Adds what the tiles carried to the rows that end in later ones.
__global__ void add_carries(float* y, const int* carry_row, const float* carry_sum, int tiles, int n) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const int row = t < tiles ? carry_row[t] : n;
  float sum = t < tiles ? carry_sum[t] : 0;
  for (int d = 1; d < 32; d *= 2) {  // the sum of equal rows, which are neighbours, goes to the first of them
    const float above = __shfl_down_sync(~0u, sum, d);
    const int row_above = __shfl_down_sync(~0u, row, d);
    if (lane + d < 32 && row_above == row) sum += above;
  }
  const int row_below = __shfl_up_sync(~0u, row, 1);
  if ((lane == 0 || row_below != row) && row < n) atomicAdd(y + row, sum);
}

}  // namespace

// The row at which each tile starts: depends on the pattern of A only.
void merge_prepare(float*, const int* row_ptr, const int*, const float*, const float*, int n, int, int nnz, int* start, int*,
                   float*, cudaStream_t stream) {
  const int tiles = tiles_of(n, nnz);
  find_starts<<<tiles / 256 + 1, 256, 0, stream>>>(start, row_ptr, n, nnz, tile_of(n, nnz), tiles);
}

void merge_multiply(float* y, const int* row_ptr, const int* col, const float* val, const float* x, int n, int, int nnz,
                    const int* start, int* carry_row, float* carry_sum, cudaStream_t stream) {
  if (n == 0) return;
  const int tiles = tiles_of(n, nnz);
  if (tile_of(n, nnz) == kSmall)
    merge_tiles<128, 4><<<tiles, 128, 0, stream>>>(y, row_ptr, col, val, x, n, nnz, start, carry_row, carry_sum);
  else
    merge_tiles<256, 7><<<tiles, 256, 0, stream>>>(y, row_ptr, col, val, x, n, nnz, start, carry_row, carry_sum);
  add_carries<<<(tiles + 127) / 128, 128, 0, stream>>>(y, carry_row, carry_sum, tiles, n);
}
