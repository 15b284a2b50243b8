// Host target: work recorded by a stream capture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "host_stream.hpp"
#include "host_types.hpp"

namespace dagc::host {

// A captured operation: work of a lane, or a mark that a lane sets, or a mark that a lane waits for. A lane was a
// stream during the capture; lane 0 becomes the stream that the graph is launched on.
struct Node {
  enum Kind { work, record, wait } kind;
  std::size_t lane;
  std::size_t mark;
  std::function<void()> run;
};

// A graph: its nodes in the order in which they were captured.
struct Nodes {
  std::vector<Node> list;
  std::size_t lanes = 0, marks = 0;
};

// A capture in progress. Used by one thread.
class Capture {
 public:
  explicit Capture(const CUstream_st* origin) : lanes_{origin} {}

  bool has(const CUstream_st* stream) const { return lane(stream) < lanes_.size(); }
  bool has(const CUevent_st* event) const { return find(event) != events_.rend(); }
  bool began_on(const CUstream_st* stream) const { return lanes_.front() == stream; }

  void work(const CUstream_st* stream, std::function<void()> run) {
    nodes_.list.push_back({Node::work, lane(stream), 0, std::move(run)});
  }
  void record(const CUstream_st* stream, const CUevent_st* event) {
    events_.emplace_back(event, nodes_.marks);
    nodes_.list.push_back({Node::record, lane(stream), nodes_.marks++, {}});
  }
  // Adds the stream to the capture.
  void wait(const CUstream_st* stream, const CUevent_st* event) {
    if (!has(stream)) lanes_.push_back(stream);
    nodes_.list.push_back({Node::wait, lane(stream), find(event)->second, {}});
  }

  // An operation was called that is not permitted during capture.
  void spoil() { spoilt_ = true; }

  // The captured graph; `status` is the reason if there is none.
  std::shared_ptr<const Nodes> end(cudaError_t* status) {
    nodes_.lanes = lanes_.size();
    *status = spoilt_ ? cudaErrorStreamCaptureInvalidated : joined() ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
    return *status == cudaSuccess ? std::make_shared<const Nodes>(std::move(nodes_)) : nullptr;
  }

 private:
  using Recorded = std::pair<const CUevent_st*, std::size_t>;

  std::size_t lane(const CUstream_st* stream) const {
    return static_cast<std::size_t>(std::find(lanes_.begin(), lanes_.end(), stream) - lanes_.begin());
  }
  std::vector<Recorded>::const_reverse_iterator find(const CUevent_st* event) const {
    return std::find_if(events_.rbegin(), events_.rend(), [=](const Recorded& r) { return r.first == event; });
  }

  // Whether lane 0 has waited for all work of the others. `seen[i][k]`: how much work of lane k precedes the next of lane i.
  bool joined() const {
    using Seen = std::vector<std::size_t>;
    std::vector<Seen> seen(lanes_.size(), Seen(lanes_.size())), marks(nodes_.marks);
    for (const Node& node : nodes_.list) {
      Seen& own = seen[node.lane];
      if (node.kind == Node::work) ++own[node.lane];
      if (node.kind == Node::record) marks[node.mark] = own;
      if (node.kind == Node::wait)
        for (std::size_t k = 0; k < own.size(); ++k) own[k] = std::max(own[k], marks[node.mark][k]);
    }
    for (std::size_t k = 0; k < seen.size(); ++k)
      if (seen[0][k] != seen[k][k]) return false;
    return true;
  }

  std::vector<const CUstream_st*> lanes_;
  std::vector<Recorded> events_;
  Nodes nodes_;
  bool spoilt_ = false;
};

inline thread_local std::unique_ptr<Capture> capturing;

inline bool captures(const CUstream_st* stream) { return capturing && capturing->has(stream); }
inline bool captured(const CUevent_st* event) { return capturing && capturing->has(event); }

}  // namespace dagc::host
