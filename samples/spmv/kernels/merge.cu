// y = A x, A in CSR, by merge path (Merrill and Garland, "Merge-based Parallel Sparse Matrix-Vector Multiplication", SC 2016).
//
// The ends of the rows and the non-zeros are merged into one list of n + nnz items. Each block takes an equal share of it (a
// tile), each thread an equal share of the tile, so that neither a row of all non-zeros nor a million empty rows makes one
// thread slower than the others. A tile leaves the sum of its last, unfinished row in a mailbox.
//
// Of small matrices, the tile in which that row ends adds up what the tiles before it left: one launch, since a second one takes
// longer than the wait. It waits for blocks of lower index only, which GPUs start first, and empties the mailboxes, so that the
// next launch finds them as this one did. Of large matrices, a second kernel adds the sums to the rows.
//
// Assumes n + nnz < 2^31 - 4096. Rows of large matrices that lie in more than 32 tiles are summed in an order that differs from
// run to run.
#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

namespace {

constexpr int kSmall = 128 * 4, kLarge = 256 * 7;  // items of a tile
constexpr long long kFew = 1 << 20;                 // up to so many items, small tiles: they fill more of the GPU
constexpr long long kWaiting = 7 << 18;             // up to so many items, one launch

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

// A sum on its way to a later tile, and a tag above it. For a tile that waits: 1, or 0 while there is none. For the second
// kernel: the row, n for none.
using Mail = std::uint64_t;
__device__ inline Mail mail_of(int tag, float sum) {
  return Mail(unsigned(tag)) << 32 | static_cast<unsigned>(__float_as_int(sum));
}
__device__ inline int tag_of(Mail mail) { return static_cast<int>(mail >> 32); }
__device__ inline float sum_of(Mail mail) { return __int_as_float(static_cast<int>(static_cast<unsigned>(mail))); }
__device__ inline float taken(Mail* mail) {
  Mail found = 0;
  while (found == 0) found = *static_cast<volatile Mail*>(mail);
  *mail = 0;
  return sum_of(found);
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

// WAITS: the sums of rows of several tiles are added here, not by another kernel.
template <int THREADS, int ITEMS, bool WAITS>
__global__ void __launch_bounds__(THREADS)
    merge_tiles(float* __restrict__ y, const int* __restrict__ row_ptr, const int* __restrict__ col,
                const float* __restrict__ val, const float* __restrict__ x, int n, int nnz, const int* __restrict__ start,
                Mail* mail) {
  constexpr int kTile = THREADS * ITEMS, kWarps = THREADS / 32;
  __shared__ float product[kTile], out[kTile];
  __shared__ int ends[kTile + 1];
  __shared__ Tail of_warp[kWarps];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const long long items = (long long)n + nnz, first = (long long)blockIdx.x * kTile;
  const int here = int(first), count = int(items - first < kTile ? items - first : kTile);
  const int row0 = start[blockIdx.x], rows = start[blockIdx.x + 1] - row0;
  const int k0 = here - row0, nonzeros = count - rows;
  // Tiles before this one with a part of the first row that ends here.
  const int before_this = WAITS && rows > 0 ? int(blockIdx.x) - (row_ptr[row0] + row0) / kTile : 0;

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
    const bool unfinished = rows == 0 || ends[rows - 1] < nonzeros;  // its last item ends no row
    const float sum = joined(warps_before, scanned).sum;
    if (!WAITS)
      mail[blockIdx.x] = mail_of(row0 + rows, sum);
    else if (unfinished)
      *static_cast<volatile Mail*>(mail + blockIdx.x) = mail_of(1, sum);
  }
  __syncthreads();
  for (int i = thread + (before_this > 0); i < rows; i += THREADS) y[row0 + i] = out[i];
  if (before_this == 0) return;
  float sum = 0;
  for (int i = thread; i < before_this; i += THREADS) sum += taken(mail + blockIdx.x - 1 - i);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  __shared__ float earlier[kWarps];
  if (lane == 0) earlier[warp] = sum;
  if (before_this > 32) __syncthreads();  // else the first warp has all of them
  if (thread > 0) return;
  for (int w = 1; w < kWarps && before_this > 32; ++w) sum += earlier[w];
  y[row0] = sum + out[0];
}

// Adds what the tiles left to the rows that end in later ones.
__global__ void add_mail(float* y, const Mail* mail, int tiles, int n) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const Mail mine = t < tiles ? mail[t] : 0;
  const int row = t < tiles ? tag_of(mine) : n;
  float sum = sum_of(mine);
  for (int d = 1; d < 32; d *= 2) {  // the sum of equal rows, which are neighbours, goes to the first of them
    const float above = __shfl_down_sync(~0u, sum, d);
    const int row_above = __shfl_down_sync(~0u, row, d);
    if (lane + d < 32 && row_above == row) sum += above;
  }
  const int row_below = __shfl_up_sync(~0u, row, 1);
  if ((lane == 0 || row_below != row) && row < n) atomicAdd(y + row, sum);
}

}  // namespace

// The row at which each tile starts depends on the pattern of A only.
void merge_prepare(float*, const int* row_ptr, const int*, const float*, const float*, int n, int, int nnz, int* start,
                   Mail* mail, cudaStream_t stream) {
  const int tiles = tiles_of(n, nnz);
  find_starts<<<tiles / 256 + 1, 256, 0, stream>>>(start, row_ptr, n, nnz, tile_of(n, nnz), tiles);
  cudaMemsetAsync(mail, 0, sizeof(Mail) * tiles, stream);
}

void merge_multiply(float* y, const int* row_ptr, const int* col, const float* val, const float* x, int n, int, int nnz,
                    int* start, Mail* mail, cudaStream_t stream) {
  if (n == 0) return;
  const int tiles = tiles_of(n, nnz);
  const long long items = (long long)n + nnz;
  if (items <= kFew) {
    merge_tiles<128, 4, true><<<tiles, 128, 0, stream>>>(y, row_ptr, col, val, x, n, nnz, start, mail);
  } else if (items <= kWaiting) {
    merge_tiles<256, 7, true><<<tiles, 256, 0, stream>>>(y, row_ptr, col, val, x, n, nnz, start, mail);
  } else {
    merge_tiles<256, 7, false><<<tiles, 256, 0, stream>>>(y, row_ptr, col, val, x, n, nnz, start, mail);
    add_mail<<<(tiles + 127) / 128, 128, 0, stream>>>(y, mail, tiles, n);
  }
}
