// CUDA graphs of the capture regions of a traversal: captured once, launched as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/programmatic.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Of a graph: its nodes, the edges that others imply and that it does not have, and those to kernels that are launched early.
struct GraphSize {
  std::int64_t nodes = 0, redundant = 0, programmatic = 0;
};

// Nodes keep the priorities of the streams on which they were captured.
#if DAGC_TARGET_CUDA && CUDART_VERSION >= 11070
inline constexpr unsigned long long node_priorities = cudaGraphInstantiateFlagUseNodePriority;
#else
inline constexpr unsigned long long node_priorities = 0;
#endif

// A captured graph, without what need not be between its nodes.
inline GraphSize shortened(cudaGraph_t graph) {
  GraphSize size;
  size.redundant = static_cast<std::int64_t>(remove_redundant_edges(graph));
  size.programmatic = static_cast<std::int64_t>(make_programmatic(graph));
  std::size_t nodes = 0;
  DAGC_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  size.nodes = static_cast<std::int64_t>(nodes);
  return size;
}

// The work issued on a stream, and on streams that fork from it and join it, as one graph to launch.
class CapturedGraph {
 public:
  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  CapturedGraph(CapturedGraph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)), size_(other.size_) {}
  CapturedGraph& operator=(CapturedGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~CapturedGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }

  // Captures what `work` issues on `origin` and on streams that wait for it. Nothing is executed.
  template <class Work>
  void capture(cudaStream_t origin, Work work) {
    begin(origin);
    try {
      work();
    } catch (...) {
      cudaGraph_t graph = nullptr;
      if (cudaStreamEndCapture(origin, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      throw;
    }
    end(origin);
  }

  // The same in two calls.
  static void begin(cudaStream_t origin) {
    // Relaxed: libraries may allocate on their first use.
    DAGC_CUDA(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed));
  }
  void end(cudaStream_t origin) {
    cudaGraph_t graph = nullptr;
    if (const cudaError_t status = cudaStreamEndCapture(origin, &graph); status != cudaSuccess)
      fail(exit_run_failed, std::string("these ops cannot be captured in a CUDA graph: ") + cudaGetErrorString(status) +
                                " (one of them synchronises, or uses another stream; compile with capture=false)");
    size_ = shortened(graph);
    DAGC_CUDA(cudaGraphInstantiate(&executable_, graph, node_priorities));
    DAGC_CUDA(cudaGraphDestroy(graph));
    DAGC_CUDA(cudaGraphUpload(executable_, origin));
  }

  void launch(cudaStream_t stream) const { DAGC_CUDA(cudaGraphLaunch(executable_, stream)); }
  GraphSize size() const { return size_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
  GraphSize size_;
};

inline std::vector<GraphSize> sizes_of(const std::vector<CapturedGraph>& graphs) {
  std::vector<GraphSize> out;
  for (const CapturedGraph& graph : graphs) out.push_back(graph.size());
  return out;
}

}  // namespace dagc
