// Host target: graphs. A launch issues the captured work again: lane 0 on the stream of the launch, the other lanes
// on the graph's own streams, with the same marks and waits, so that unordered work may run concurrently.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "host_capture.hpp"
#include "host_runtime.hpp"
#include "host_stream.hpp"
#include "host_types.hpp"

struct CUgraph_st {
  std::shared_ptr<const dagc::host::Nodes> nodes;
};

struct CUgraphExec_st {
  explicit CUgraphExec_st(std::shared_ptr<const dagc::host::Nodes> captured) : nodes(std::move(captured)) {
    for (std::size_t k = 1; k < nodes->lanes; ++k)
      own.push_back(dagc::host::Runtime::get().make_stream(cudaStreamNonBlocking));
  }
  CUgraphExec_st(const CUgraphExec_st&) = delete;
  CUgraphExec_st& operator=(const CUgraphExec_st&) = delete;
  ~CUgraphExec_st() {
    for (CUstream_st* stream : own) stream->close();
  }

  void launch(CUstream_st& on) const {
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
  std::vector<CUstream_st*> own;
};

using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

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
  if (auto nodes = dagc::host::capturing->end(&status)) *graph = new CUgraph_st{std::move(nodes)};
  dagc::host::capturing.reset();
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
  *executable = new CUgraphExec_st(graph->nodes);
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
