// Host target: stream capture and graphs. A graph keeps what was issued while it was captured, in that order, and runs
// it in that order on the stream that it is launched on: one of the orders that CUDA may choose.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "host_stream.hpp"
#include "host_types.hpp"

namespace dagc::host {

using Work = std::function<void()>;

// A capture under way: what was issued so far, and the streams and events that take part. Of one thread.
struct Capture {
  std::vector<Work> nodes;
  std::vector<const CUstream_st*> streams;  // the first is the origin
  std::vector<const CUevent_st*> events;

  bool has(const CUstream_st* stream) const { return std::find(streams.begin(), streams.end(), stream) != streams.end(); }
  bool has(const CUevent_st* event) const { return std::find(events.begin(), events.end(), event) != events.end(); }
};

inline thread_local std::unique_ptr<Capture> capturing;

inline bool captures(const CUstream_st* stream) { return capturing && capturing->has(stream); }

}  // namespace dagc::host

struct CUgraph_st {
  std::shared_ptr<const std::vector<dagc::host::Work>> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<dagc::host::Work>> nodes;
};
