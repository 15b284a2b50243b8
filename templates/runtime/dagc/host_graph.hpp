// Host target: graphs. A launch issues the captured work again: lane 0 on the stream of the launch, the other lanes
// on the graph's own streams, with the same marks and waits, so that unordered work may run concurrently.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "host_capture.hpp"
#include "host_runtime.hpp"
#include "host_stream.hpp"
#include "host_types.hpp"

namespace dagc::host {
struct Condition {
  unsigned value, first;  // `first`: when a launch begins
};
}  // namespace dagc::host

// What was captured, or one while node with its body.
struct CUgraph_st {
  std::shared_ptr<const dagc::host::Nodes> nodes;
  std::shared_ptr<dagc::host::Condition> condition;
  std::shared_ptr<CUgraph_st> body;
};

struct CUgraphExec_st {
  explicit CUgraphExec_st(const CUgraph_st& graph) : nodes(graph.nodes), condition(graph.condition) {
    if (graph.body) body = std::make_shared<CUgraphExec_st>(*graph.body);
    for (std::size_t k = 1; k < (body ? 2 : nodes->lanes); ++k)
      own.push_back(dagc::host::Runtime::get().make_stream(cudaStreamNonBlocking));
  }
  CUgraphExec_st(const CUgraphExec_st&) = delete;
  CUgraphExec_st& operator=(const CUgraphExec_st&) = delete;
  ~CUgraphExec_st() {
    for (CUstream_st* stream : own) stream->close();
  }

  void launch(CUstream_st& on) const {
    if (!body) return issue(on);
    // On the thread of that stream: the body, on streams of its own, while the condition holds.
    on.push([condition = condition, body = body, lane = own[0]] {
      for (condition->value = condition->first; condition->value != 0;) {
        body->launch(*lane);
        dagc::host::Runtime::get().synchronize(*lane);
      }
    });
  }

 private:
  void issue(CUstream_st& on) const {
    using dagc::host::Node;
    using dagc::host::Record;
    std::vector<Record*> marks(nodes->marks, nullptr);
    for (const Node& node : nodes->list) {
      CUstream_st& stream = node.lane == 0 ? on : *own[node.lane - 1];
      if (node.kind == Node::work) stream.push(node.run);  // a copy: shared ownership would order the streams
      if (node.kind == Node::record) marks[node.mark] = dagc::host::Runtime::get().mark(stream);
      if (node.kind != Node::wait) continue;
      Record* const mark = marks[node.mark];
      mark->hold();
      stream.push([mark] {
        mark->wait();
        mark->drop();
      });
    }
    for (Record* mark : marks) mark->drop();
  }

  std::shared_ptr<const dagc::host::Nodes> nodes;
  std::shared_ptr<dagc::host::Condition> condition;
  std::shared_ptr<CUgraphExec_st> body;
  std::vector<CUstream_st*> own;
};

using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

namespace dagc::host {
inline thread_local cudaGraph_t capturing_to = nullptr;  // null: a graph of its own
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  if (handle == nullptr || dagc::host::capturing) return dagc::host::remember(cudaErrorStreamCaptureUnsupported);
  if (!handle->open()) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  dagc::host::capturing = std::make_unique<dagc::host::Capture>(handle);
  return cudaSuccess;
}
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
inline cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  *status = dagc::host::captures(handle) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!dagc::host::capturing || !dagc::host::capturing->began_on(stream))
    return dagc::host::remember(cudaErrorInvalidValue);
  cudaError_t status = cudaSuccess;
  if (auto nodes = dagc::host::capturing->end(&status)) {
    *graph = dagc::host::capturing_to != nullptr ? dagc::host::capturing_to : new CUgraph_st;
    (*graph)->nodes = std::move(nodes);
  }
  dagc::host::capturing.reset();
  dagc::host::capturing_to = nullptr;
  return dagc::host::remember(status);
}
// Only counts: nodes are those that CUDA would have, without events.
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, std::nullptr_t, std::size_t* count) {
  *count = static_cast<std::size_t>(std::count_if(graph->nodes->list.begin(), graph->nodes->list.end(), [](const dagc::host::Node& node) {
    return node.kind == dagc::host::Node::work;
  }));
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long = 0) {
  if (graph == nullptr) return dagc::host::remember(cudaErrorInvalidValue);
  if (!graph->nodes && !(graph->body && graph->body->nodes)) return dagc::host::remember(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  CUstream_st* stream = dagc::host::Runtime::get().resolve(handle);
  if (executable == nullptr || stream == nullptr) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captures(stream)) return dagc::host::remember(cudaErrorNotSupported);  // graphs within graphs
  executable->launch(*stream);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

// ---- while nodes: one in a graph, and its body is captured ----

using cudaGraphConditionalHandle = unsigned long long;
using cudaGraphNode_t = CUgraph_st*;
// As CUDA 11 has it, with what failed and where.
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, cudaGraphNode_t* node, char*,
                                        std::size_t) {
  if (node != nullptr) *node = nullptr;
  return cudaGraphInstantiate(executable, graph);
}
enum cudaGraphNodeType { cudaGraphNodeTypeConditional = 13 };
enum cudaGraphConditionalNodeType { cudaGraphCondTypeWhile = 1 };
inline constexpr unsigned cudaGraphCondAssignDefault = 1;
struct cudaConditionalNodeParams {
  cudaGraphConditionalHandle handle;
  cudaGraphConditionalNodeType type;
  unsigned size;
  cudaGraph_t* phGraph_out;
};
struct cudaGraphNodeParams {
  cudaGraphNodeType type;
  cudaConditionalNodeParams conditional;
  cudaGraph_t body;
};
struct cudaGraphEdgeData;

inline cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = new CUgraph_st;
  return cudaSuccess;
}
inline cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned first,
                                                    unsigned flags) {
  graph->condition = std::make_shared<dagc::host::Condition>(
      dagc::host::Condition{0, (flags & cudaGraphCondAssignDefault) != 0 ? first : 0});
  *handle = reinterpret_cast<std::uintptr_t>(graph->condition.get());
  return cudaSuccess;
}
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                    std::size_t dependencies, cudaGraphNodeParams* params) {
  const bool known = graph->condition && params->conditional.handle == reinterpret_cast<std::uintptr_t>(graph->condition.get());
  if (!known || graph->body || graph->nodes || dependencies != 0) return dagc::host::remember(cudaErrorInvalidValue);
  graph->body = std::make_shared<CUgraph_st>();
  *node = params->body = graph->body.get();
  params->conditional.phGraph_out = &params->body;
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t*,
                                                 const cudaGraphEdgeData*, std::size_t, cudaStreamCaptureMode mode) {
  const cudaError_t status = cudaStreamBeginCapture(stream, mode);
  if (status == cudaSuccess) dagc::host::capturing_to = graph;
  return status;
}
inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
  reinterpret_cast<dagc::host::Condition*>(handle)->value = value;
}
// DAGC_HOST_DRIVER: the number of another driver, for what a program does without what that lacks.
inline cudaError_t cudaDriverGetVersion(int* version) {
  const char* const given = std::getenv("DAGC_HOST_DRIVER");
  *version = given != nullptr ? std::atoi(given) : 13000;
  return cudaSuccess;
}
