// Host target: all streams and events of the process, and how work is issued to them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fault.hpp"
#include "guard_pages.hpp"
#include "host_capture.hpp"
#include "host_stream.hpp"
#include "host_types.hpp"

using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaHostFn_t = void (*)(void*);

inline constexpr cudaStream_t cudaStreamLegacy = nullptr;

namespace dagc::host {

inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int device = 0;   // the current GPU
inline std::atomic<int> gpus{1};      // of a rank
inline bool at_once = false;          // work that is issued is done when the call returns
// What a library does on a stream, which no launch of the program shows: called with its name and, where that is known,
// the place of the call (else a null pointer). The recording sets it.
inline void (*on_library_call)(const char* name, const char* file, int line) = nullptr;

inline cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// All streams and events of the process, touched by issuing threads only. Never destroyed: threads of streams may still
// sleep in them when the process ends.
class Runtime {
 public:
  static Runtime& get() {
    static Runtime& runtime = *new Runtime;
    return runtime;
  }

  CUstream_st* make_stream(unsigned int flags) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((flags & cudaStreamNonBlocking) == 0) any_blocking_.store(true, std::memory_order_relaxed);
    for (const auto& stream : streams_)
      if (!stream->open()) {
        stream->reopen(flags);
        return stream.get();
      }
    streams_.push_back(std::make_unique<CUstream_st>(flags));
    return streams_.back().get();
  }
  CUevent_st* make_event(unsigned int flags) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& event : events_)
      if (!event->open()) {
        event->reopen(flags);
        return event.get();
      }
    events_.push_back(std::make_unique<CUevent_st>(flags));
    return events_.back().get();
  }

  // The stream of a handle, ready for the next operation; null if it was destroyed.
  CUstream_st* resolve(cudaStream_t handle) {
    CUstream_st* stream = handle == nullptr ? null_stream() : handle;
    if (!stream->open()) return nullptr;
    if (any_blocking_.load(std::memory_order_relaxed)) order_with_null(*stream);
    return stream;
  }

  void synchronize(CUstream_st& stream) {
    for (int i = 0; i < kSpins; ++i) {
      if (stream.idle()) return;
      pause();
    }
    Record* record = marks_.record_held(stream);
    record->wait();
    record->drop();
  }
  // A mark after the work issued on a stream so far, held for the caller.
  Record* mark(CUstream_st& stream) { return marks_.record_held(stream); }
  void synchronize_null() {
    if (CUstream_st* stream = null_.load(std::memory_order_acquire)) synchronize(*stream);
  }
  void synchronize_all() {
    std::vector<CUstream_st*> all;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& stream : streams_) all.push_back(stream.get());
    }
    for (CUstream_st* stream : all) synchronize(*stream);
  }

 private:
  CUstream_st* null_stream() {
    if (CUstream_st* stream = null_.load(std::memory_order_acquire)) return stream;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (null_.load(std::memory_order_relaxed) == nullptr) {
      streams_.push_back(std::make_unique<CUstream_st>(cudaStreamDefault));
      null_.store(streams_.back().get(), std::memory_order_release);
    }
    return null_.load(std::memory_order_relaxed);
  }

  // CUDA's legacy rule: the null stream and streams that were not created non-blocking wait for one another.
  void order_with_null(CUstream_st& stream) {
    CUstream_st* const null = null_.load(std::memory_order_acquire);
    if (null == nullptr || !stream.blocking()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (&stream != null) {
      after(stream, *null);
      return;
    }
    for (const auto& other : streams_)
      if (other.get() != null && other->blocking()) after(stream, *other);
  }
  void after(CUstream_st& later, CUstream_st& earlier) {
    if (!earlier.used()) return;
    Record* record = marks_.record_held(earlier);
    later.push([record] {
      record->wait();
      record->drop();
    });
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::atomic<CUstream_st*> null_{nullptr};
  std::atomic<bool> any_blocking_{false};
  CUevent_st marks_{cudaEventDisableTiming};  // for marks of one use: only its records matter
};

// Calls that are not permitted during capture invalidate it.
inline cudaError_t spoil(cudaError_t error) {
  capturing->spoil();
  return remember(error);
}

// Issues `work` on a stream; it belongs to the op that this thread issues, whichever thread runs it.
template <class F>
cudaError_t issue(cudaStream_t handle, F part) {
  CUstream_st* stream = Runtime::get().resolve(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  auto work = [op = op_under_way.load(std::memory_order_relaxed), part = std::move(part)]() mutable {
    begin_op(op);
    part();
    end_op();
  };
  if (captures(stream))
    capturing->work(stream, std::move(work));
  else
    stream->push(std::move(work));
  if (at_once && !captures(stream)) Runtime::get().synchronize(*stream);
  return cudaSuccess;
}

inline cudaError_t allocate(void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = GuardedMemory::get().allocate(bytes, 256);
  return remember(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace dagc::host
