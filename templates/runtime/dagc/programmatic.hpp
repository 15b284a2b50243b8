// Edges of CUDA graphs: those that others imply are removed, and some of the others made programmatic: a kernel is launched while the kernel before it ends, and itself waits for that.
//
// A kernel that begins with `wait_for_dependencies` reads and writes memory only once all that it depends on has completed
// and is visible, whichever edges it has. Edges from kernels to it may therefore be programmatic. The launch then needs
// no time after the end of the kernel before it, only the wait. Since that is a wait for completion, it does not matter where a
// kernel lets its dependents start; after its own wait, the dependents of the dependents cannot start before it either.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/redundant_edges.hpp"
#include "dagc/target.hpp"
#include "dagc/waiting.hpp"

namespace dagc {

#if DAGC_TARGET_CUDA && CUDART_VERSION >= 12030
#if CUDART_VERSION >= 13000
#define DAGC_WITH_EDGE_DATA(function) function
#else
#define DAGC_WITH_EDGE_DATA(function) function##_v2
#endif

namespace detail {

struct GraphEdges {
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;

  void resize(std::size_t n) {
    from.resize(n);
    to.resize(n);
    data.resize(n);
  }
  void push_back(const GraphEdges& other, std::size_t i) {
    from.push_back(other.from[i]);
    to.push_back(other.to[i]);
    data.push_back(other.data[i]);
  }
  static cudaError_t get(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, std::size_t* n) {
    return DAGC_WITH_EDGE_DATA(cudaGraphGetEdges)(graph, from, to, data, n);
  }
  static GraphEdges of(cudaGraph_t graph) {
    std::size_t n = 0;
    DAGC_CUDA(get(graph, nullptr, nullptr, nullptr, &n));
    GraphEdges out;
    out.resize(n);
    if (n > 0) DAGC_CUDA(get(graph, out.from.data(), out.to.data(), out.data.data(), &n));
    return out;
  }
  // False for a graph that allocates memory, as calls of a library may do when they are captured: it keeps its edges.
  bool removed_from(cudaGraph_t graph) const {
    const cudaError_t error =
        DAGC_WITH_EDGE_DATA(cudaGraphRemoveDependencies)(graph, from.data(), to.data(), data.data(), from.size());
    if (error == cudaErrorNotSupported) (void)cudaGetLastError();
    if (error != cudaErrorNotSupported) DAGC_CUDA(error);
    return error == cudaSuccess;
  }
  void add_to(cudaGraph_t graph) const {
    DAGC_CUDA(DAGC_WITH_EDGE_DATA(cudaGraphAddDependencies)(graph, from.data(), to.data(), data.data(), from.size()));
  }
};

// Without the edges that others imply, of a graph with at most this many nodes.
constexpr std::size_t kReducedNodes = 10'000;

inline std::size_t remove_redundant(cudaGraph_t graph) {
  std::size_t n = 0;
  DAGC_CUDA(cudaGraphGetNodes(graph, nullptr, &n));
  if (n > kReducedNodes) return 0;
  std::vector<cudaGraphNode_t> nodes(n);
  if (n > 0) DAGC_CUDA(cudaGraphGetNodes(graph, nodes.data(), &n));
  std::sort(nodes.begin(), nodes.end());
  const auto number = [&](cudaGraphNode_t node) {
    return static_cast<std::size_t>(std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin());
  };
  const GraphEdges all = GraphEdges::of(graph);
  std::vector<GraphEdge> edges;
  for (std::size_t i = 0; i < all.from.size(); ++i) edges.push_back({number(all.from[i]), number(all.to[i])});
  GraphEdges out;
  for (std::size_t i : redundant_edges(n, edges)) out.push_back(all, i);
  return !out.from.empty() && out.removed_from(graph) ? out.from.size() : 0;
}

inline bool is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeCount;
  DAGC_CUDA(cudaGraphNodeGetType(node, &type));
  return type == cudaGraphNodeTypeKernel;
}

// False for kernels of the driver's interface, which the runtime does not know.
inline bool waits_itself(cudaGraphNode_t node) {
  if (!is_kernel(node)) return false;
  cudaKernelNodeParams launch = {};
  const bool known = cudaGraphKernelNodeGetParams(node, &launch) == cudaSuccess;
  if (!known) (void)cudaGetLastError();
  return known && WaitingKernels::has(launch.func);
}

}  // namespace detail
#undef DAGC_WITH_EDGE_DATA

// Makes the edges programmatic that may be: all edges to a kernel of `WaitingKernels`, if they come from kernels. Returns their
// number; 0 on GPUs before compute capability 9.0.
inline std::size_t make_programmatic(cudaGraph_t graph) {
  if (!WaitingKernels::any()) return 0;
  int device = 0, major = 0;
  DAGC_CUDA(cudaGetDevice(&device));
  DAGC_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major < 9) return 0;
  const detail::GraphEdges edges = detail::GraphEdges::of(graph);
  std::vector<cudaGraphNode_t> full;  // nodes with an edge that stays as it is
  for (std::size_t i = 0; i < edges.to.size(); ++i)
    if (!detail::is_kernel(edges.from[i]) || !detail::waits_itself(edges.to[i])) full.push_back(edges.to[i]);
  detail::GraphEdges before, after;
  for (std::size_t i = 0; i < edges.to.size(); ++i) {
    if (std::find(full.begin(), full.end(), edges.to[i]) != full.end()) continue;
    for (detail::GraphEdges* one : {&before, &after}) one->push_back(edges, i);
    after.data.back().from_port = cudaGraphKernelNodePortProgrammatic;
    after.data.back().type = cudaGraphDependencyTypeProgrammatic;
  }
  if (after.to.empty() || !before.removed_from(graph)) return 0;
  after.add_to(graph);
  return after.to.size();
}

// Removes the edges that others imply, and returns their number.
inline std::size_t remove_redundant_edges(cudaGraph_t graph) { return detail::remove_redundant(graph); }
#else
inline std::size_t make_programmatic(cudaGraph_t /*graph*/) { return 0; }  // the order is the same
inline std::size_t remove_redundant_edges(cudaGraph_t /*graph*/) { return 0; }
#endif

}  // namespace dagc
