// Barnes and Hut's method on the GPU. Coordinates: x of all bodies, then y, then z.
#include <cuda_runtime.h>

#include "tree.hpp"

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kDigit = 8, kDigits = 1 << kDigit;          // bits of a place that one pass of the sort looks at
constexpr int kEach = 8, kTile = kThreads * kEach;        // bodies of a thread and of a block, in a pass
constexpr int kWalkers = 4;                               // warps of a block that walk through the tree
constexpr int kLeft = 1536, kList = 128;                  // cells that a warp has still to look at; what acts on its group
static_assert(kThreads == kDigits && kGroup == 32, "a thread for each digit, a lane for each body of a group");

__device__ inline unsigned below_me() { return (1u << threadIdx.x % 32) - 1; }

// Floats as integers of the same order, for the atomics.
__device__ inline int ordered(float x) {
  const int bits = __float_as_int(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
__device__ inline float unordered(int bits) { return __int_as_float(bits < 0 ? bits ^ 0x7fffffff : bits); }

// `ends`: of each coordinate the greatest of -x, then of x. A warp; lanes without a body repeat another's.
__device__ inline void widen(int* ends, const float (&at)[3]) {
  for (int side = 0; side < 6; ++side) {
    int most = ordered(side < 3 ? -at[side] : at[side - 3]);
    for (int step = 16; step > 0; step /= 2) {
      const int other = __shfl_down_sync(~0u, most, step);
      most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0 && most > *static_cast<volatile int*>(ends + side)) atomicMax(ends + side, most);
  }
}

__device__ inline Box box_of(const int* ends) {
  Box box;
  box.size = 1e-30f;
  for (int c = 0; c < 3; ++c) {
    box.low[c] = -unordered(ends[c]);
    const float size = unordered(ends[3 + c]) - box.low[c];
    box.size = size > box.size ? size : box.size;
  }
  return box;
}

__global__ void __launch_bounds__(kThreads) find_box(int* ends, const float* x, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x, own = i < n ? i : n - 1;
  widen(ends, {x[own], x[n + own], x[2 * n + own]});
}

// ---- in the order of the curve -----------------------------------------------------------------------------------

// How many bodies of each tile have each digit.
__device__ inline void count_digits(int* counts, const unsigned (&places)[kEach], int shift, int begin, int n) {
  __shared__ int of_tile[kDigits];
  of_tile[threadIdx.x] = 0;
  __syncthreads();
  for (int k = 0; k < kEach; ++k)
    if (begin + k * kThreads < n) atomicAdd(of_tile + (places[k] >> shift & (kDigits - 1)), 1);
  __syncthreads();
  counts[blockIdx.x * kDigits + threadIdx.x] = of_tile[threadIdx.x];
}

// `next_ends`: for the box of the next step.
__global__ void __launch_bounds__(kThreads)
find_places(unsigned* places, int* counts, const int* ends, int* next_ends, int shift, const float* x, int n) {
  if (blockIdx.x == 0 && threadIdx.x < 6) next_ends[threadIdx.x] = static_cast<int>(0x80808080u);
  const int begin = blockIdx.x * kTile + threadIdx.x;
  const Box box = box_of(ends);
  unsigned mine[kEach] = {};
  for (int k = 0; k < kEach; ++k) {
    const int i = begin + k * kThreads;
    if (i < n) places[i] = mine[k] = place_of(box, x[i], x[n + i], x[2 * n + i]);
  }
  count_digits(counts, mine, shift, begin, n);
}

__global__ void __launch_bounds__(kThreads) count_places(int* counts, const unsigned* places, int shift, int n) {
  const int begin = blockIdx.x * kTile + threadIdx.x;
  unsigned mine[kEach] = {};
  for (int k = 0; k < kEach; ++k)
    if (begin + k * kThreads < n) mine[k] = places[begin + k * kThreads];
  count_digits(counts, mine, shift, begin, n);
}

// One pass of the sort, stable. Without `from`, bodies are in their own order; with `sorted`, it is the last pass.
__global__ void __launch_bounds__(kThreads)
move_bodies(unsigned* new_places, int* to, float4* sorted, const unsigned* places, const int* from, const int* counts,
            int shift, const float* x, const float* m, int n) {
  __shared__ int next[kWarps][kDigits], of_warp[kWarps];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, tiles = static_cast<int>(gridDim.x);
  int before = 0, all = 0;                                // of this thread's digit: in tiles before this one, in all
  for (int tile = 0; tile < tiles; ++tile) {
    const int count = counts[tile * kDigits + thread];
    before += tile < static_cast<int>(blockIdx.x) ? count : 0;
    all += count;
  }
  int upto = all;                                         // and of all smaller digits
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, upto, step);
    upto += lane >= step ? other : 0;
  }
  if (lane == 31) of_warp[warp] = upto;
  for (int w = 0; w < kWarps; ++w) next[w][thread] = 0;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += of_warp[w];
  before += upto - all;

  // The rank of each body among those of its warp with its digit.
  const int begin = blockIdx.x * kTile + warp * 32 * kEach + lane;
  int digit[kEach], rank[kEach];
  for (int k = 0; k < kEach; ++k) {
    const int i = begin + 32 * k;
    digit[k] = i < n ? static_cast<int>(places[i] >> shift & (kDigits - 1)) : 0;
    unsigned same = __ballot_sync(~0u, i < n);
    for (int bit = 0; bit < kDigit; ++bit) {
      const unsigned set = __ballot_sync(~0u, digit[k] >> bit & 1);
      same &= digit[k] >> bit & 1 ? set : ~set;
    }
    rank[k] = next[warp][digit[k]] + __popc(same & below_me());
    __syncwarp();
    if (i < n && (same & below_me()) == 0) next[warp][digit[k]] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {
    const int count = next[w][thread];
    next[w][thread] = before;
    before += count;
  }
  __syncthreads();
  for (int k = 0; k < kEach; ++k) {
    const int i = begin + 32 * k;
    if (i >= n) continue;
    const int at = next[warp][digit[k]] + rank[k], body = from == nullptr ? i : from[i];
    to[at] = body;
    if (sorted == nullptr) new_places[at] = places[i];
    else sorted[at] = make_float4(x[body], x[n + body], x[2 * n + body], m[body]);
  }
}

// ---- the tree ----------------------------------------------------------------------------------------------------

// A warp for each group and its leaves, kLeaf lanes a leaf.
__global__ void __launch_bounds__(kThreads) build_groups(Cell* cells, const float4* sorted, int leaves, int n) {
  const int lane = threadIdx.x % 32, group = (blockIdx.x * kThreads + threadIdx.x) / 32, i = group * kGroup + lane;
  const int leaf = i / kLeaf, first = leaf * kLeaf;
  if (group * kGroup >= n) return;
  const float4 body = sorted[i < n ? i : n - 1];
  const float mass = i < n ? body.w : 0;
  Cell cell{{mass * body.x, mass * body.y, mass * body.z}, mass, {body.x, body.y, body.z}, first,
            {body.x, body.y, body.z}, first + kLeaf <= n ? kLeaf : n - first};
  for (int step = kLeaf / 2; step > 0; step /= 2) {
    cell.mass += __shfl_xor_sync(~0u, cell.mass, step);
    for (int c = 0; c < 3; ++c) {
      cell.at[c] += __shfl_xor_sync(~0u, cell.at[c], step);
      const float low = __shfl_xor_sync(~0u, cell.low[c], step), high = __shfl_xor_sync(~0u, cell.high[c], step);
      cell.low[c] = low < cell.low[c] ? low : cell.low[c];
      cell.high[c] = high > cell.high[c] ? high : cell.high[c];
    }
  }
  for (int c = 0; c < 3; ++c) cell.at[c] = cell.mass > 0 ? cell.at[c] / cell.mass : cell.low[c];
  if (lane % kLeaf == 0 && leaf < leaves) cells[leaf] = cell;
  __syncwarp();
  if (lane != 0) return;
  const int begin = group * kChildren;
  cells[leaves + group] = cell_of(cells, begin, begin + kChildren <= leaves ? kChildren : leaves - begin);
}

// The levels above. One block.
__global__ void __launch_bounds__(kDigits * 4) build_top(Cell* cells, Levels levels) {
  for (int level = 2; level < levels.count; ++level) {
    const int begin = levels.begin[level], below = levels.begin[level - 1];
    for (int i = begin + static_cast<int>(threadIdx.x); i < levels.begin[level + 1]; i += static_cast<int>(blockDim.x)) {
      const int first = below + (i - begin) * kChildren;
      cells[i] = cell_of(cells, first, first + kChildren <= begin ? kChildren : begin - first);
    }
    __threadfence_block();
    __syncthreads();
  }
}

__device__ inline void attract(float (&sum)[3], const float4* list, int size, float4 at, float soft) {
#pragma unroll 4
  for (int j = 0; j < size; ++j) {
    const float4 from = list[j];
    const float dx = from.x - at.x, dy = from.y - at.y, dz = from.z - at.z;
    const float root = rsqrtf(dx * dx + dy * dy + dz * dz + soft * soft), pull = from.w * root * root * root;
    sum[0] += pull * dx;
    sum[1] += pull * dy;
    sum[2] += pull * dz;
  }
}

// kParts warps for each group, which divide the tree. The lanes of one look at 32 cells at a time, and write those that
// count as one body, and the bodies of leaves that are near, into a list, which acts on all bodies of the group. Then
// bodies move.
template <int kParts>
__global__ void __launch_bounds__(kWalkers * 32)
walk(float* a, float* x, float* v, int* next_ends, const Cell* cells, const float4* sorted, const int* bodies,
     Levels levels, int n, float soft, float G, float theta, float step) {
  __shared__ int all_left[kWalkers][kLeft];
  __shared__ float4 lists[kWalkers][kList];
  __shared__ int leaves_near[kWalkers][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % kParts, leaves = levels.begin[1];
  const int group = (blockIdx.x * kWalkers + warp) / kParts, i = group * kGroup + lane, own = i < n ? i : n - 1;
  if (group * kGroup >= n) return;
  const Cell around = cells[leaves + group];
  const float4 at = sorted[own];
  int *left = all_left[warp], *near = leaves_near[warp], found = 0;
  float4* list = lists[warp];
  float sum[3] = {};
  const auto make_room = [&] {                            // for 32 more
    if (found + 32 <= kList) return;
    __syncwarp();
    attract(sum, list, found, at, soft);
    __syncwarp();
    found = 0;
  };

  // From the root, or from the cells of the highest level that has enough of them for all parts.
  constexpr int kStarts = kParts == 1 ? 1 : 16 * kParts;
  int level = levels.count - 1;
  while (level > 0 && levels.begin[level + 1] - levels.begin[level] < kStarts) --level;
  int size = (levels.begin[level + 1] - levels.begin[level] - part + kParts - 1) / kParts;
  for (int k = lane; k < size; k += 32) left[k] = levels.begin[level] + part + k * kParts;
  while (size > 0) {
    // Each cell that is taken leaves kChildren: fewer are taken where there would be no room.
    const int room = (kLeft - size) / (kChildren - 1), most = size < 32 ? size : 32, taken = room < most ? room : most;
    __syncwarp();
    const bool has = lane < taken;
    const int number = has ? left[size - 1 - lane] : 0;
    const Cell cell = cells[number];
    __syncwarp();
    const bool far = has && is_far(cell, around, theta), leaf = has && !far && number < leaves;
    const int children = has && !far && !leaf ? cell.count : 0;
    size -= taken;
    make_room();
    const unsigned all_far = __ballot_sync(~0u, far), all_leaf = __ballot_sync(~0u, leaf);
    if (far) list[found + __popc(all_far & below_me())] = make_float4(cell.at[0], cell.at[1], cell.at[2], cell.mass);
    found += __popc(all_far);
    int upto = children;
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = __shfl_up_sync(~0u, upto, apart);
      upto += lane >= apart ? other : 0;
    }
    for (int k = 0; k < children; ++k) left[size + upto - children + k] = cell.first + k;
    size += __shfl_sync(~0u, upto, 31);
    if (leaf) near[__popc(all_leaf & below_me())] = number;
    __syncwarp();
    const int near_leaves = __popc(all_leaf);
    for (int k = 0; k < near_leaves; k += 32 / kLeaf) {
      make_room();
      const int of = k + lane / kLeaf, j = of < near_leaves ? near[of] * kLeaf + lane % kLeaf : n;
      list[found + lane] = j < n ? sorted[j] : make_float4(0, 0, 0, 0);
      found += 32;
    }
  }
  __syncwarp();
  attract(sum, list, found, at, soft);
  if constexpr (kParts > 1) {
    static_assert(kParts == kWalkers, "a block for each group");
    __shared__ float parts[kParts][3][32];
    for (int c = 0; c < 3; ++c) parts[part][c][lane] = sum[c];
    __syncthreads();
    if (part != 0) return;
    for (int c = 0; c < 3; ++c)
      for (int other = 1; other < kParts; ++other) sum[c] += parts[other][c][lane];
  }

  const int body = bodies[own];
  float place[3];
  for (int c = 0; c < 3; ++c) {
    const int to = c * n + body;
    const float pull = G * sum[c], speed = v[to] + step * pull;
    place[c] = (c == 0 ? at.x : c == 1 ? at.y : at.z) + step * speed;
    if (i >= n) continue;
    a[to] = pull;
    v[to] = speed;
    x[to] = place[c];
  }
  widen(next_ends, place);
}

unsigned blocks(int items, int each) { return static_cast<unsigned>((items + each - 1) / each); }

template <int kParts>
void simulate(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps,
              double step, double soft, double G, double theta, float* v, float* sorted_bodies, float* all_cells,
              unsigned* places, int* order, int* counts, int* all_ends, cudaStream_t stream) {
  const Levels levels = levels_for(n);
  const int passes = kParts > 1 && n <= 65536 ? 3 : 4;    // 8 bits of each coordinate tell so many bodies apart
  const auto shift_of = [&](int pass) { return pass == 0 && passes == 4 ? 0 : 3 * kBits - kDigit * (passes - pass); };
  const unsigned tiles = blocks(n, kTile), groups = blocks(n, kGroup);
  float4* sorted = reinterpret_cast<float4*>(sorted_bodies);
  Cell* cells = reinterpret_cast<Cell*>(all_cells);
  cudaMemcpyAsync(x, x0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaMemcpyAsync(v, v0, 3 * n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaMemsetAsync(all_ends, 0x80, 12 * sizeof(int), stream);
  find_box<<<blocks(n, kThreads), kThreads, 0, stream>>>(all_ends, x, n);
  for (int s = 0; s < steps; ++s) {
    int *ends = all_ends + s % 2 * 6, *next_ends = all_ends + (s + 1) % 2 * 6;
    find_places<<<tiles, kThreads, 0, stream>>>(places, counts, ends, next_ends, shift_of(0), x, n);
    for (int pass = 0; pass < passes; ++pass) {
      const int now = pass % 2, next = 1 - now;
      if (pass > 0) count_places<<<tiles, kThreads, 0, stream>>>(counts, places + now * n, shift_of(pass), n);
      move_bodies<<<tiles, kThreads, 0, stream>>>(places + next * n, order + next * n,
                                                  pass < passes - 1 ? nullptr : sorted, places + now * n,
                                                  pass > 0 ? order + now * n : nullptr, counts, shift_of(pass), x, m, n);
    }
    build_groups<<<blocks(static_cast<int>(groups), kWarps), kThreads, 0, stream>>>(cells, sorted, levels.begin[1], n);
    if (levels.count > 2) build_top<<<1, kDigits * 4, 0, stream>>>(cells, levels);
    walk<kParts><<<blocks(static_cast<int>(groups) * kParts, kWalkers), kWalkers * 32, 0, stream>>>(
        a, x, v, next_ends, cells, sorted, order + passes % 2 * n, levels, n, static_cast<float>(soft),
        static_cast<float>(G), static_cast<float>(theta), static_cast<float>(step));
  }
}

}  // namespace

// A warp for each group of bodies.
void barnes_hut_on_gpu(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps,
                       double step, double soft, double G, double theta, float* v, float* sorted, float* cells,
                       unsigned* places, int* order, int* counts, int* ends, cudaStream_t stream) {
  simulate<1>(x, a, x0, v0, m, n, steps, step, soft, G, theta, v, sorted, cells, places, order, counts, ends, stream);
}

// Four warps for each group: for clouds whose groups do not fill the GPU.
void barnes_hut_divided(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps,
                        double step, double soft, double G, double theta, float* v, float* sorted, float* cells,
                        unsigned* places, int* order, int* counts, int* ends, cudaStream_t stream) {
  simulate<4>(x, a, x0, v0, m, n, steps, step, soft, G, theta, v, sorted, cells, places, order, counts, ends, stream);
}
