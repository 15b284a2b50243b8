// Functions on the host as work of a stream: each runs in a worker thread, after all work before it on the stream has
// completed, and work behind it waits for it. The issuing thread does not wait.
//
//   dagc::WorkerCalls calls;
//   calls.enqueue(stream, "op `f` (kernel `f`)", f, y, x, n);   // f(y, x, n)
//   calls.check();                                               // in a library: throws what one of them has thrown
//
// The worker is a thread of the CUDA runtime, on the host target that of the stream. Such functions must not call CUDA
// (cudaLaunchHostFunc) or MPI, of which only one thread of a rank is known.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "dagc/check.hpp"
#include "dagc/fault.hpp"
#include "dagc/target.hpp"

namespace dagc {

class WorkerCalls {
 public:
  WorkerCalls() = default;
  WorkerCalls(const WorkerCalls&) = delete;
  WorkerCalls& operator=(const WorkerCalls&) = delete;

  // The arguments are taken as they are now. What a graph captures may run again and again, so it is kept.
  template <class R, class... P>
  void enqueue(cudaStream_t stream, const char* op, R (*function)(P...), std::common_type_t<P>... arguments) {
    using Work = WorkOf<R (*)(P...), std::common_type_t<P>...>;
    auto work = std::make_unique<Work>(*this, op, function, std::move(arguments)...);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    DAGC_CUDA(cudaStreamIsCapturing(stream, &capture));
    work->kept = capture != cudaStreamCaptureStatusNone;
    if (work->kept) kept_.push_back(std::move(work));
    CallOnce* const call = work != nullptr ? work.release() : kept_.back().get();
    DAGC_CUDA(cudaLaunchHostFunc(stream, &WorkerCalls::run, call));  // which owns it, if it is not kept
  }

  // Throws for the first function that has thrown since this was last called.
  void check() {
    if (!failed_.load(std::memory_order_relaxed)) return;
    const std::lock_guard<std::mutex> lock(failing_);
    failed_.store(false, std::memory_order_relaxed);
    fail(exit_run_failed, std::exchange(failure_, {}));
  }

 private:
  struct CallOnce {
    CallOnce(WorkerCalls& calls, const char* name) : owner(calls), op(name) {}
    virtual ~CallOnce() = default;
    virtual void call() = 0;

    WorkerCalls& owner;
    const char* op;
    bool kept = false;
#ifdef _OPENMP
    int threads = omp_get_max_threads();  // of the thread that issues it: a number belongs to its thread
#endif
  };
  template <class F, class... Arguments>
  struct WorkOf final : CallOnce {
    WorkOf(WorkerCalls& calls, const char* name, F f, Arguments... given)
        : CallOnce(calls, name), function(f), arguments(std::move(given)...) {}
    void call() override { std::apply(function, arguments); }

    F function;
    std::tuple<Arguments...> arguments;
  };

  static void run(void* data) {
    CallOnce* const work = static_cast<CallOnce*>(data);
    const std::unique_ptr<CallOnce> once(work->kept ? nullptr : work);
    make_signal_stack();
#ifdef _OPENMP
    omp_set_num_threads(work->threads);
#endif
    begin_op(work->op);
    try {
      work->call();
    } catch (const std::exception& error) {
      work->owner.failed(std::string(work->op) + ": " + error.what());
    } catch (...) {
      work->owner.failed(std::string(work->op) + " threw an exception");
    }
    end_op();
  }

  // An exception would end the process if it left the thread.
  void failed(const std::string& text) {
#ifdef DAGC_LIBRARY
    const std::lock_guard<std::mutex> lock(failing_);
    if (!failed_.load(std::memory_order_relaxed)) failure_ = text;
    failed_.store(true, std::memory_order_relaxed);
#else
    fail(exit_run_failed, text);
#endif
  }

  std::vector<std::unique_ptr<CallOnce>> kept_;
  std::atomic<bool> failed_{false};  // relaxed: it orders nothing that ThreadSanitizer would then not see
  std::mutex failing_;
  std::string failure_;
};

}  // namespace dagc
