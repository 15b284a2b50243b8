// Iterations that follow one another on the device: a `while` node of a CUDA graph, whose body is an iteration and its test, or
// one kernel (one_kernel.hpp).
// The host waits once for many of them. With `test_every`, the body is several iterations, each of which is compared, and one
// decision whether to go on. If the condition held before the last of them, the arrays that `keep` names are set to what they
// were before the body, and the iterations until then are done again: the results are those of a test after each.
//
//   loop.until(residual, Compare::lt, 1e-8);                  // optional: the condition that ends them
//   loop.capture(stream, [&] { iteration; });
//   loop.run(stream, 500, true, [](auto work) { work(); });   // at most 500, until the condition holds
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dagc/capture.hpp"
#include "dagc/check.hpp"
#include "dagc/loop_test.hpp"
#include "dagc/message.hpp"
#include "dagc/one_kernel.hpp"
#include "dagc/target.hpp"

namespace dagc {

class DeviceLoop {
 public:
  DeviceLoop() = default;
  DeviceLoop(const DeviceLoop&) = delete;
  DeviceLoop& operator=(const DeviceLoop&) = delete;
  ~DeviceLoop() {
    for (Body& body : bodies_)
      if (body.loop != nullptr) cudaGraphExecDestroy(body.loop);
    for (Kept& one : kept_)
      if (one.copy != nullptr) cudaFree(one.copy);
    if (state_ != nullptr) cudaFree(state_);
    if (seen_ != nullptr) cudaFreeHost(seen_);
  }

  // The condition after each iteration: `*value`, which the device reads, against `bound`.
  template <class T, class Bound>
  LoopTest<T, Bound> until(const T* value, Compare compare, Bound bound) {
    const LoopTest<T, Bound> test{value, compare, bound};
    test_ = [=](cudaStream_t stream, LoopState* state, cudaGraphConditionalHandle handle, bool node) {
      issue_test(stream, state, test, handle, node);
      DAGC_CUDA(cudaGetLastError());
    };
    return test;
  }

  // Iterations within `kernel`, in place of a while node, if its blocks can run at once. Before `capture`. Collective if ranks
  // send `messages` in it, which all of them then do in this way, or none.
  template <class Test, std::size_t N, class... Parameters>
  void in_one_kernel(void (*kernel)(LoopState*, Test, OpGrids<N>, Parameters...), bool messages, MPI_Comm comm, Test test,
                     const OpGrids<N>& of, typename SameType<Parameters>::type... arguments) {
    const Together shape = together(kernel, of, messages ? ranks_of_gpu(comm) : 1);
    why_nodes_ = shape.why;
    int no = shape.why.empty() ? 0 : 1;
    if (messages) DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &no, 1, MPI_INT, MPI_MAX, comm));
    if (no != 0 && shape.why.empty()) why_nodes_ = "another rank cannot";
    if (no != 0) return;
    kernel_ = [=](cudaStream_t stream, LoopState* state) {
      launch_together(kernel, shape.blocks, shape.threads, stream, state, test, of, arguments...);
    };
  }

  // Before `capture`. Iterations of a body; and what it begins with, if they may be done again.
  void test_every(std::int64_t iterations) { every_ = std::max<std::int64_t>(1, iterations); }
  void keep(void* data, std::size_t bytes) {
    if (bytes > 0) kept_.push_back({data, nullptr, bytes});
  }

  // The host asks after each iteration, by `agree`, what all ranks find; `why` it must. Before `capture`.
  void ask_host(std::string why, std::function<bool(bool)> agree) {
    why_host_ = std::move(why);
    agree_ = std::move(agree);
  }

  // Why the host tests after each iteration; "" if the device does.
  const std::string& why_host() const { return why_host_; }

  // Why iterations are not within one kernel, as wanted; "" if they are, or that is not wanted.
  const std::string& why_nodes() const { return why_nodes_; }

  // Captures an iteration that `work` issues on `origin`, and on streams that wait for it. Nothing is executed.
  template <class Work>
  void capture(cudaStream_t origin, Work work) {
    if (state_ == nullptr) {
      DAGC_CUDA(cudaMalloc(&state_, sizeof(LoopState)));
      DAGC_CUDA(cudaMallocHost(&seen_, sizeof(LoopState)));
    }
    if (!test_) until(static_cast<const int*>(nullptr), Compare::never, 0);
    if (kernel_) return;
    if (why_host_.empty()) why_host_ = without_nodes();
    if (agree_) every_ = 1;
    if (every_ > 1)
      for (Kept& one : kept_) DAGC_CUDA(cudaMalloc(&one.copy, one.bytes));
    capture_body(one_, 1, origin, work);
    if (every_ > 1) capture_body(several_, every_, origin, work);
  }

  struct Ran {
    std::int64_t runs;
    bool ended;  // whether the condition held after the last one
  };

  // Of the iterations of a body, with their tests.
  GraphSize size() const { return kernel_ ? GraphSize{1, 0, 0} : bodies_[every_ > 1].size; }

  // What was compared after the last iteration.
  double value() const { return seen_->value; }

  // At most `most` iterations; with `stops`, until the condition holds. `around` calls each part that the host waits for.
  template <class Around>
  Ran run(cudaStream_t stream, std::int64_t most, bool stops, Around around) {
    Ran out{0, false};
    while (out.runs < most && !(stops && out.ended)) {
      const std::int64_t left = most - out.runs;
      const Body& body = bodies_[every_ > 1 && !kernel_ && left >= every_];
      const std::int64_t wanted = body.loop != nullptr || (kernel_ && !agree_) ? std::min(std::max(part_, body.iterations), left) : body.iterations;
      const std::int64_t some = wanted / body.iterations * body.iterations;
      const double begin = seconds_now();
      around([&] {
        launch_some(body, stream, some, stops);
        if (seen_->extra > 0) again(stream, body.iterations - seen_->extra);
      });
      out.runs += some - seen_->left;
      out.ended = seen_->ended != 0;
      if (agree_) out.ended = agree_(out.ended);
      // A part takes a fraction of a second, so that a hang is told from a long loop.
      const double each = (seconds_now() - begin) / static_cast<double>(some);
      part_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(kPartSeconds / std::max(each, 1e-9), 64.0 * static_cast<double>(part_))));
    }
    return out;
  }

 private:
  static int ranks_of_gpu(MPI_Comm comm) {
#if DAGC_TARGET_CUDA
    int devices = 1;
    DAGC_CUDA(cudaGetDeviceCount(&devices));
    return (local_rank(comm).ranks + devices - 1) / devices;
#else
    static_cast<void>(comm);
    return 1;
#endif
  }

  static constexpr double kPartSeconds = 0.25;

  static std::string without_nodes() {
#if DAGC_WHILE_NODES
    int driver = 0;
    DAGC_CUDA(cudaDriverGetVersion(&driver));
    if (driver >= 12040) return "";
    return "the driver is for CUDA " + std::to_string(driver / 1000) + "." + std::to_string(driver / 10 % 100) +
           ", and while nodes need 12.4";
#else
    return "compiled by CUDA before 12.4, which has no while nodes";
#endif
  }

  // What is launched: a while node, or else the iterations of a body once.
  struct Body {
    std::int64_t iterations = 1;
    cudaGraphExec_t loop = nullptr;
    CapturedGraph once;
    GraphSize size;
  };
  struct Kept {
    void* data;
    void* copy;
    std::size_t bytes;
  };

  // After a body that went on for some iterations: it is done again to there. `seen_` is that of both.
  void again(cudaStream_t stream, std::int64_t iterations) {
    const LoopState whole = *seen_;
    for (const Kept& one : kept_) DAGC_CUDA(cudaMemcpyAsync(one.data, one.copy, one.bytes, cudaMemcpyDefault, stream));
    for (std::int64_t left = iterations; left > 0;) {
      const std::int64_t some = one_.loop != nullptr ? left : 1;
      launch_some(one_, stream, some, false);
      left -= some;
    }
    seen_->left = whole.left + whole.extra;
  }

  void launch_some(const Body& body, cudaStream_t stream, std::int64_t some, bool stops) {
    *seen_ = {some, stops, 0, 0, 0};
    DAGC_CUDA(cudaMemcpyAsync(state_, seen_, sizeof(LoopState), cudaMemcpyHostToDevice, stream));
    if (kernel_) {
      kernel_(stream, state_);
    } else if (body.loop != nullptr) {
      DAGC_CUDA(cudaGraphLaunch(body.loop, stream));
    } else {
      body.once.launch(stream);
    }
    DAGC_CUDA(cudaMemcpyAsync(seen_, state_, sizeof(LoopState), cudaMemcpyDeviceToHost, stream));
    begin_op("the repetition on the device");
    DAGC_CUDA(cudaStreamSynchronize(stream));
    end_op();
  }

  template <class Work>
  void capture_body(Body& body, std::int64_t iterations, cudaStream_t origin, Work& work) {
    body.iterations = iterations;
    const auto all = [&](cudaGraphConditionalHandle handle, bool node) {
      if (iterations > 1)
        for (const Kept& one : kept_) DAGC_CUDA(cudaMemcpyAsync(one.copy, one.data, one.bytes, cudaMemcpyDefault, origin));
      for (std::int64_t k = 1; k <= iterations; ++k) {
        work();
        test_(origin, state_, handle, node && k == iterations);
      }
    };
    if (why_host_.empty()) why_host_ = capture_while(body, origin, all);
    if (why_host_.empty()) return;
    body.once.capture(origin, [&] { all(cudaGraphConditionalHandle{}, false); });
    body.size = body.once.size();
  }

  // "", or why a while node cannot have these ops.
  template <class Work>
  std::string capture_while([[maybe_unused]] Body& of, [[maybe_unused]] cudaStream_t origin, [[maybe_unused]] const Work& work) {
#if DAGC_WHILE_NODES
    cudaGraph_t graph = nullptr;
    DAGC_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle{};
    DAGC_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams node{};
    node.type = cudaGraphNodeTypeConditional;
    node.conditional.handle = handle;
    node.conditional.type = cudaGraphCondTypeWhile;
    node.conditional.size = 1;
    cudaGraphNode_t added = nullptr;
#if DAGC_TARGET_CUDA && CUDART_VERSION < 13000
    DAGC_CUDA(cudaGraphAddNode(&added, graph, nullptr, 0, &node));
#else
    DAGC_CUDA(cudaGraphAddNode(&added, graph, nullptr, nullptr, 0, &node));
#endif
    cudaGraph_t body = node.conditional.phGraph_out[0];
    // Relaxed: libraries may allocate on their first use.
    DAGC_CUDA(cudaStreamBeginCaptureToGraph(origin, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    try {
      work(handle, true);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(origin, &body));
      cudaGraphDestroy(graph);
      throw;
    }
    cudaError_t status = cudaStreamEndCapture(origin, &body);
    if (status == cudaSuccess) {
      of.size = shortened(body);
      status = cudaGraphInstantiate(&of.loop, graph, 0);
    }
    DAGC_CUDA(cudaGraphDestroy(graph));
    if (status != cudaSuccess) {
      of.loop = nullptr;
      static_cast<void>(cudaGetLastError());
      return std::string("a while node cannot have these ops: ") + cudaGetErrorString(status);
    }
    DAGC_CUDA(cudaGraphUpload(of.loop, origin));
#endif
    return "";
  }

  std::function<void(cudaStream_t, LoopState*, cudaGraphConditionalHandle, bool)> test_;
  std::function<void(cudaStream_t, LoopState*)> kernel_;
  std::function<bool(bool)> agree_;
  std::string why_host_, why_nodes_;
  Body bodies_[2];  // of one iteration, and of several
  Body &one_ = bodies_[0], &several_ = bodies_[1];
  std::vector<Kept> kept_;
  std::int64_t every_ = 1;
  LoopState* state_ = nullptr;
  LoopState* seen_ = nullptr;  // page-locked
  std::int64_t part_ = 4;      // iterations that the host waits for at once
};

// Collective, before `capture`. Ranks that exchange messages must end after the same iteration. They do if the value is
// `shared`, that is, the same on all of them, as `bound` and `most` must be; else the host asks all of them each time.
inline void end_together(DeviceLoop& loop, bool shared, double bound, std::int64_t most, const char* until, MPI_Comm comm) {
  int ranks = 1;
  DAGC_MPI(MPI_Comm_size(comm, &ranks));
  if (ranks == 1) return;
  double ends[4] = {bound, -bound, static_cast<double>(most), -static_cast<double>(most)}, all[4];
  DAGC_MPI(MPI_Allreduce(ends, all, 4, MPI_DOUBLE, MPI_MAX, comm));
  if (all[2] != -all[3])
    fail(exit_bad_input, "the ranks do not agree on the number of runs, which is " + std::to_string(most) + " here");
  if (shared && all[0] == -all[1]) return;
  const std::string why = shared ? "its bound differs between ranks" : "its value is no result of a collective, and may differ between ranks";
  loop.ask_host("`" + std::string(until) + "`: " + why, [until, comm](bool mine) { return agreed(mine, until, comm); });
}

}  // namespace dagc
