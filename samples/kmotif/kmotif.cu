// Motifs of 3 and 4 vertices on the GPU. Graphs in compressed sparse row form, without directions, neighbours sorted.
#include <cuda_runtime.h>

#include "motifs.hpp"

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kScanners = 1024, kTables = 128;
using Count = unsigned long long;

struct Graph {
  const int *ptr, *ends;
  int n;
  __device__ Count degree(int v) const { return static_cast<Count>(ptr[v + 1] - ptr[v]); }
  __device__ bool above(int u, int v) const { return degree(u) > degree(v) || (degree(u) == degree(v) && u > v); }
};

// The place of a value in sorted ones, -1 if it is none of them.
__device__ inline int find(const int* values, int begin, int end, int wanted) {
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (values[middle] < wanted) begin = middle + 1; else end = middle;
    if (begin == end) break;
  }
  return begin;
}
__device__ inline int place_of(const int* values, int begin, int end, int wanted) {
  const int at = find(values, begin, end, wanted);
  return at < end && values[at] == wanted ? at : -1;
}

// Adds what each lane of a warp has counted. All lanes.
__device__ inline void add_over_warp(std::uint64_t* to, Count mine) {
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  if (threadIdx.x % 32 == 0 && mine != 0) atomicAdd(reinterpret_cast<Count*>(to), mine);
}

__device__ inline int warp() { return static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / 32); }
__device__ inline int warps() { return static_cast<int>(gridDim.x * kWarps); }

// ---- each occurrence --------------------------------------------------------------------------------------------

// A warp for each edge (v, u), u > v: the connected subgraphs that begin with it (ESU: Wernicke, 2006). What may come
// next: the neighbours of v behind u, then those of u that are larger than v and no neighbours of it.
struct Next {
  const Graph& graph;
  int v, u, own, begin;                                   // so many of v; the others from there, among those of u
  __device__ int size() const { return own + graph.ptr[u + 1] - graph.ptr[u]; }
  // Vertex i, and whether it is a neighbour of v (1) and of u (2). False: it must not come.
  __device__ bool at(int i, int& vertex, int& near) const {
    vertex = i < own ? graph.ends[begin + i] : graph.ends[graph.ptr[u] + i - own];
    const int other = i < own ? u : v;
    const bool both = place_of(graph.ends, graph.ptr[other], graph.ptr[other + 1], vertex) >= 0;
    near = i < own ? 1 + 2 * both : 2;
    return i < own || (vertex > v && !both);
  }
};

__global__ void __launch_bounds__(kThreads) each(std::uint64_t* counts, Graph graph, int k) {
  const int lane = threadIdx.x % 32, m = graph.ptr[graph.n];
  Count mine[6] = {};
  for (int e = warp(); e < m; e += warps()) {
    const int v = find(graph.ptr, 0, graph.n, e + 1) - 1, u = graph.ends[e];
    if (u < v) continue;
    const Next next{graph, v, u, graph.ptr[v + 1] - e - 1, e + 1};
    for (int i = lane; i < next.size(); i += 32) {
      int w = 0, near_w = 0;
      if (!next.at(i, w, near_w)) continue;
      if (k == 3) {
        ++mine[near_w == 3];
        continue;
      }
      for (int j = i + 1; j < next.size(); ++j) {
        int x = 0, near_x = 0;
        if (!next.at(j, x, near_x)) continue;
        const bool with_w = place_of(graph.ends, graph.ptr[w], graph.ptr[w + 1], x) >= 0;
        ++mine[motif_of(near_w, near_x + 4 * with_w)];
      }
      for (int f = graph.ptr[w]; f < graph.ptr[w + 1]; ++f) {
        const int x = graph.ends[f];
        if (x > v && x != u && place_of(graph.ends, graph.ptr[v], graph.ptr[v + 1], x) < 0 &&
            place_of(graph.ends, graph.ptr[u], graph.ptr[u + 1], x) < 0)
          ++mine[motif_of(near_w, 4)];
      }
    }
  }
  for (int i = 0; i < 6; ++i) add_over_warp(counts + i, mine[i]);
}

// ---- by formulas ------------------------------------------------------------------------------------------------

// Edges lead to the vertex of more neighbours. A warp for each vertex.
__global__ void __launch_bounds__(kThreads) count_out(int* out_ptr, std::uint64_t* sums, Graph graph) {
  Count wedges = 0, stars = 0;
  const int lane = threadIdx.x % 32;
  for (int v = warp(); v < graph.n; v += warps()) {
    int count = 0;
    for (int e = graph.ptr[v] + lane; e < graph.ptr[v + 1]; e += 32) count += graph.above(graph.ends[e], v);
    for (int step = 16; step > 0; step /= 2) count += __shfl_down_sync(~0u, count, step);
    if (lane != 0) continue;
    const Count d = graph.degree(v);
    out_ptr[v] = count;
    wedges += d * (d - 1) / 2;
    stars += d < 3 ? 0 : d * (d - 1) * (d - 2) / 6;
  }
  add_over_warp(sums + kWedges, wedges);
  add_over_warp(sums + kStars, stars);
}

// Counts into what is before them; one more is the sum. One block, coalesced: kScanners counts at a time.
__global__ void __launch_bounds__(kScanners) scan(int* counts, int size) {
  __shared__ int of_warp[kScanners / 32];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int before = 0;
  for (int begin = 0; begin < size; begin += kScanners) {
    const int i = begin + thread, own = i < size ? counts[i] : 0;
    int upto = own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, upto, step);
      upto += lane >= step ? other : 0;
    }
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < kScanners / 32; ++w) {
      upto += w < warp ? of_warp[w] : 0;
      all += of_warp[w];
    }
    if (i < size) counts[i] = before + upto - own;
    before += all;
    __syncthreads();
  }
  if (thread == 0) counts[size] = before;
}

// The edges of each vertex in their order, with their triangles, still none. A warp for each vertex.
__global__ void __launch_bounds__(kThreads)
write_out(int* out, int* source, int* triangles, std::uint64_t* sums, const int* out_ptr, Graph graph) {
  Count paths = 0;
  const int lane = threadIdx.x % 32;
  for (int v = warp(); v < graph.n; v += warps()) {
    int to = out_ptr[v];
    for (int begin = graph.ptr[v]; begin < graph.ptr[v + 1]; begin += 32) {
      const int e = begin + lane, u = e < graph.ptr[v + 1] ? graph.ends[e] : v;
      const bool has = u != v && graph.above(u, v);
      const unsigned all = __ballot_sync(~0u, has);
      const int at = to + __popc(all & ((1u << lane) - 1));
      to += __popc(all);
      if (!has) continue;
      out[at] = u;
      source[at] = v;
      triangles[at] = 0;
      paths += (graph.degree(v) - 1) * (graph.degree(u) - 1);
    }
  }
  add_over_warp(sums + kPaths, paths);
}

// Triangles (v, u, w), and cliques with a fourth vertex. A warp for each edge (v, u), a lane for each w: those of the
// shorter list are looked up in the longer one.
__global__ void __launch_bounds__(kThreads)
find_triangles(int* triangles, std::uint64_t* sums, const int* out_ptr, const int* out, const int* source, int half,
               Graph graph, int k) {
  const int lane = threadIdx.x % 32;
  Count found = 0, paws = 0, cliques = 0;
  for (int e = warp(); e < half; e += warps()) {
    int v = source[e], u = out[e], mine = 0;
    if (out_ptr[v + 1] - out_ptr[v] < out_ptr[u + 1] - out_ptr[u]) {
      const int longer = u;
      u = v;
      v = longer;
    }
    const int begin = out_ptr[v], end = out_ptr[v + 1];
    for (int f = out_ptr[u] + lane; f < out_ptr[u + 1]; f += 32) {
      const int w = out[f], g = place_of(out, begin, end, w);
      if (g < 0) continue;
      ++found;
      ++mine;
      if (k == 3) continue;
      paws += graph.degree(v) + graph.degree(u) + graph.degree(w) - 6;
      atomicAdd(triangles + f, 1);
      atomicAdd(triangles + g, 1);
      for (int h = out_ptr[w]; h < out_ptr[w + 1]; ++h)
        cliques += place_of(out, begin, end, out[h]) >= 0 && place_of(out, out_ptr[u], out_ptr[u + 1], out[h]) >= 0;
    }
    if (k == 4 && mine != 0) atomicAdd(triangles + e, mine);
  }
  add_over_warp(sums + kTriangles, found);
  add_over_warp(sums + kPaws, paws);
  add_over_warp(sums + kCliques, cliques);
}

// Cycles of four by their largest vertex v (Chiba and Nishizeki, 1985): paths of two edges from v to each w below it. A
// block takes the next v, since degrees follow the numbers of vertices: dealt out in turn, one block of 128 had 32 times
// the work of the mean in a Kronecker graph. `table` is zero before and after.
__global__ void __launch_bounds__(kThreads) find_cycles(unsigned* table, std::uint64_t* sums, Graph graph) {
  __shared__ int next;
  unsigned* paths = table + static_cast<long>(blockIdx.x) * graph.n;
  const int lane = threadIdx.x % 32, of_block = threadIdx.x / 32;
  Count cycles = 0;
  while (true) {
    if (threadIdx.x == 0) next = static_cast<int>(atomicAdd(reinterpret_cast<Count*>(sums + kSums), Count{1}));
    __syncthreads();
    const int v = next;
    if (v >= graph.n) break;
    for (int turn = 0; turn < 2; ++turn) {                // counted, then cleared
      for (int e = graph.ptr[v] + of_block; e < graph.ptr[v + 1]; e += kWarps) {
        const int u = graph.ends[e];
        if (!graph.above(v, u)) continue;
        for (int f = graph.ptr[u] + lane; f < graph.ptr[u + 1]; f += 32) {
          const int w = graph.ends[f];
          if (!graph.above(v, w)) continue;
          if (turn == 0) cycles += atomicAdd(paths + w, 1u); else paths[w] = 0;
        }
      }
      __syncthreads();
    }
  }
  add_over_warp(sums + kCycles, cycles);
}

__global__ void __launch_bounds__(kThreads) add_diamonds(std::uint64_t* sums, const int* triangles, int half) {
  Count diamonds = 0;
  for (int e = blockIdx.x * kThreads + threadIdx.x; e < half; e += static_cast<int>(gridDim.x) * kThreads) {
    const Count t = static_cast<Count>(triangles[e]);
    diamonds += t * (t - 1) / 2;
  }
  add_over_warp(sums + kDiamonds, diamonds);
}

__global__ void finish(std::uint64_t* counts, const std::uint64_t* sums, int k) {
  Sums all;
  for (int i = 0; i < kSums; ++i) all.of[i] = sums[i];
  all.finish(counts, k);
}

// Blocks for so many warps, no more than a GPU holds at once.
unsigned blocks_for(int warps) {
  const int blocks = (warps + kWarps - 1) / kWarps;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < 1056 ? blocks : 1056);
}

}  // namespace

void count_each_on_gpu(std::uint64_t* counts, const int* ptr, const int* ends, int k, int n, int m,
                       cudaStream_t stream) {
  cudaMemsetAsync(counts, 0, 6 * sizeof *counts, stream);
  each<<<blocks_for(m), kThreads, 0, stream>>>(counts, Graph{ptr, ends, n}, k);
}

void count_by_formulas_on_gpu(std::uint64_t* counts, const int* ptr, const int* ends, int k, int n, int m, int* out_ptr,
                              int* out, int* source, int* triangles, std::uint64_t* sums, unsigned* table,
                              cudaStream_t stream) {
  const Graph graph{ptr, ends, n};
  const int half = m / 2;
  cudaMemsetAsync(sums, 0, (kSums + 1) * sizeof *sums, stream);  // and the next vertex
  count_out<<<blocks_for(n), kThreads, 0, stream>>>(out_ptr, sums, graph);
  scan<<<1, kScanners, 0, stream>>>(out_ptr, n);
  write_out<<<blocks_for(n), kThreads, 0, stream>>>(out, source, triangles, sums, out_ptr, graph);
  find_triangles<<<blocks_for(half), kThreads, 0, stream>>>(triangles, sums, out_ptr, out, source, half, graph, k);
  if (k == 4) {
    cudaMemsetAsync(table, 0, sizeof *table * kTables * static_cast<unsigned>(n), stream);
    find_cycles<<<kTables, kThreads, 0, stream>>>(table, sums, graph);
    add_diamonds<<<blocks_for(half / 32), kThreads, 0, stream>>>(sums, triangles, half);
  }
  finish<<<1, 1, 0, stream>>>(counts, sums, k);
}
