// PageRank on the GPU: x = d P x + (1 - d) / n, iterated until an iteration changes x by no more than `limit`, summed
// over all vertices. Vertices without links give their rank to nobody here; dividing x by its sum in the end is the
// same as giving it to all vertices (Langville and Meyer, 2006, section 5.2).
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kThreads = 256, kMost = 504, kAhead = 8;    // iterations: at most, and enqueued before one is looked at
constexpr int kEdges = 8;                                 // of a thread, by edge
constexpr int kSum = 511;                                 // where `change` has the sum of all ranks

struct Graph {
  const int *in_ptr, *from, *out_ptr;
  int n, m;
  float d;
  double limit;
};

void must(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "pagerank.cu: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// What v gives to each of its successors.
__device__ inline float share(const Graph& graph, float rank, int v) {
  const int degree = graph.out_ptr[v + 1] - graph.out_ptr[v];
  return degree == 0 ? 0 : graph.d * rank / static_cast<float>(degree);
}

// Adds one number of each thread of a block. All threads.
__device__ inline void add_over_block(double* to, double mine) {
  __shared__ double of_warp[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double all = 0;
  for (int w = 0; w < kThreads / 32; ++w) all += of_warp[w];
  if (all != 0) atomicAdd(to, all);
}

// Whether the iteration before was the last: this one then changes nothing, and its change stays 0.
__device__ inline bool ended(const Graph& graph, const double* change, int iteration) {
  return iteration > 0 && change[iteration - 1] <= graph.limit;
}

__device__ inline double updated(const Graph& graph, float* x, float* next, int v, float rank) {
  const double by = fabs(static_cast<double>(rank) - x[v]);
  x[v] = rank;
  next[v] = share(graph, rank, v);
  return by;
}

__global__ void begin(Graph graph, float* x, float* given, float* sum) {
  const int v = blockIdx.x * kThreads + threadIdx.x;
  if (v >= graph.n) return;
  x[v] = 1.0f / static_cast<float>(graph.n);
  given[v] = share(graph, x[v], v);
  if (sum != nullptr) sum[v] = 0;
}

__device__ inline float base(const Graph& graph) { return (1 - graph.d) / static_cast<float>(graph.n); }

// A thread for each vertex.
__global__ void __launch_bounds__(kThreads)
by_vertex(Graph graph, float* x, const float* now, float* next, double* change, int iteration) {
  if (ended(graph, change, iteration)) return;
  const int v = blockIdx.x * kThreads + threadIdx.x;
  double by = 0;
  if (v < graph.n) {
    float rank = base(graph);
    for (int e = graph.in_ptr[v]; e < graph.in_ptr[v + 1]; ++e) rank += now[graph.from[e]];
    by = updated(graph, x, next, v, rank);
  }
  add_over_block(change + iteration, by);
}

// A warp for each vertex.
__global__ void __launch_bounds__(kThreads)
by_warp(Graph graph, float* x, const float* now, float* next, double* change, int iteration) {
  if (ended(graph, change, iteration)) return;
  const int warps = static_cast<int>(gridDim.x) * (kThreads / 32), lane = threadIdx.x % 32;
  double by = 0;
  for (int v = (blockIdx.x * kThreads + threadIdx.x) / 32; v < graph.n; v += warps) {
    float rank = 0;
    const int last = graph.in_ptr[v + 1];
    for (int e = graph.in_ptr[v] + lane; e < last; e += 32) rank += now[graph.from[e]];
    for (int step = 16; step > 0; step /= 2) rank += __shfl_down_sync(~0u, rank, step);
    if (lane == 0) by += updated(graph, x, next, v, rank + base(graph));
  }
  add_over_block(change + iteration, by);
}

// A thread for each kEdges edges, which begin in the middle of a vertex; then a thread for each vertex.
__global__ void __launch_bounds__(kThreads)
add_edges(Graph graph, const float* given, float* sum, const double* change, int iteration) {
  const long long first = (blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x) * kEdges;
  if (first >= graph.m || ended(graph, change, iteration)) return;
  int e = static_cast<int>(first);
  const int last = e + kEdges < graph.m ? e + kEdges : graph.m;
  int low = 0, high = graph.n;                            // the vertex of edge e: the last that begins at e or before
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (graph.in_ptr[middle] <= e) low = middle; else high = middle;
  }
  for (int v = low; e < last; ++v) {
    const int end = graph.in_ptr[v + 1] < last ? graph.in_ptr[v + 1] : last;
    if (e >= end) continue;
    float part = 0;
    for (; e < end; ++e) part += given[graph.from[e]];
    atomicAdd(sum + v, part);
  }
}

__global__ void __launch_bounds__(kThreads)
update(Graph graph, float* x, float* given, float* sum, double* change, int iteration) {
  if (ended(graph, change, iteration)) return;
  const int v = blockIdx.x * kThreads + threadIdx.x;
  double by = 0;
  if (v < graph.n) {
    by = updated(graph, x, given, v, sum[v] + base(graph));
    sum[v] = 0;
  }
  add_over_block(change + iteration, by);
}

__global__ void __launch_bounds__(kThreads) add_ranks(const float* x, int n, double* sum) {
  const int v = blockIdx.x * kThreads + threadIdx.x;
  add_over_block(sum, v < n ? x[v] : 0);
}

__global__ void normalise(float* x, int n, const double* sum) {
  const int v = blockIdx.x * kThreads + threadIdx.x;
  if (v < n) x[v] = static_cast<float>(x[v] / *sum);
}

// Enqueues iterations, kAhead at a time, until one of them was the last; those behind it do nothing.
template <class Iteration>
void iterate(const Graph& graph, float* x, float* given, float* sum, double* change, cudaStream_t stream,
             Iteration enqueue) {
  const unsigned blocks = static_cast<unsigned>((graph.n + kThreads - 1) / kThreads);
  must(cudaMemsetAsync(change, 0, 512 * sizeof *change, stream));
  begin<<<blocks, kThreads, 0, stream>>>(graph, x, given, sum);
  for (int done = 0; done < kMost; done += kAhead) {
    for (int i = done; i < done + kAhead; ++i) enqueue(blocks, i);
    double last = 0;
    must(cudaMemcpyAsync(&last, change + done + kAhead - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    if (last <= graph.limit) break;
  }
  add_ranks<<<blocks, kThreads, 0, stream>>>(x, graph.n, change + kSum);
  normalise<<<blocks, kThreads, 0, stream>>>(x, graph.n, change + kSum);
  must(cudaGetLastError());
}

}  // namespace

void pagerank_by_vertex(float* x, const int* in_ptr, const int* from, const int* out_ptr, const int*, int n, int m,
                        double d, double limit, float* given, double* change, cudaStream_t stream) {
  const Graph graph{in_ptr, from, out_ptr, n, m, static_cast<float>(d), limit};
  iterate(graph, x, given, nullptr, change, stream, [&](unsigned blocks, int i) {
    by_vertex<<<blocks, kThreads, 0, stream>>>(graph, x, given + i % 2 * n, given + (i + 1) % 2 * n, change, i);
  });
}

void pagerank_by_warp(float* x, const int* in_ptr, const int* from, const int* out_ptr, const int*, int n, int m,
                      double d, double limit, float* given, double* change, cudaStream_t stream) {
  const Graph graph{in_ptr, from, out_ptr, n, m, static_cast<float>(d), limit};
  iterate(graph, x, given, nullptr, change, stream, [&](unsigned blocks, int i) {
    const unsigned most = blocks * 32 < 2112 ? blocks * 32 : 2112;
    by_warp<<<most, kThreads, 0, stream>>>(graph, x, given + i % 2 * n, given + (i + 1) % 2 * n, change, i);
  });
}

void pagerank_by_edge(float* x, const int* in_ptr, const int* from, const int* out_ptr, const int*, int n, int m,
                      double d, double limit, float* given, float* sum, double* change, cudaStream_t stream) {
  const Graph graph{in_ptr, from, out_ptr, n, m, static_cast<float>(d), limit};
  const unsigned of_edges = static_cast<unsigned>((m + kThreads * kEdges - 1) / (kThreads * kEdges));
  iterate(graph, x, given, sum, change, stream, [&](unsigned blocks, int i) {
    if (of_edges != 0) add_edges<<<of_edges, kThreads, 0, stream>>>(graph, given, sum, change, i);
    update<<<blocks, kThreads, 0, stream>>>(graph, x, given, sum, change, i);
  });
}
