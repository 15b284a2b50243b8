// Host target: streams as threads, events as exact marks in them.
//
// The happens-before relation is exactly CUDA's, also for ThreadSanitizer: issuing an operation comes
// before it, operations of a stream are ordered, and other threads see a stream's work only through an event or a
// synchronise. Hence no mutex and no shared counter between a stream and its issuing threads: a task is published by
// one release store (and acquired by one load of the same place), a record by another, all else is `dagc::quiet`.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fault.hpp"
#include "host_types.hpp"
#include "tsan.hpp"

namespace dagc::host {

// Polls before sleeping: enough for answers within a microsecond or two, too few to occupy a core.
inline constexpr int kSpins = 64;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Sleeps while `word` holds `value`; may wake for no reason.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// One recording of an event: a place in a stream that is reached once. Reused by its event when unreferenced,
// and never freed, so that late wakers and waiters always find it.
class Record {
 public:
  bool unused() const { return references_.load(quiet::acquire) == 0; }
  // Makes an unused record pending again, held by `references` holders.
  void reset(int references) {
    gate_.store(kPending, std::memory_order_relaxed);
    done_.store(false, std::memory_order_relaxed);
    references_.store(references, std::memory_order_relaxed);
  }
  void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() { references_.fetch_sub(1, quiet::acq_rel); }

  // By the stream: publishes everything before to the waiting threads.
  void complete() {
    time_.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    done_.store(true, std::memory_order_release);
    if (gate_.exchange(kReached, quiet::acq_rel) == kSleepers) futex_wake_all(gate_);
  }
  bool reached() const { return gate_.load(quiet::acquire) == kReached; }
  // After `reached`: the caller sees what the stream did before the record.
  void acquire() const {
    while (!done_.load(std::memory_order_relaxed)) pause();
    static_cast<void>(done_.load(std::memory_order_acquire));
  }
  void wait() {
    for (int i = 0; i < kSpins && !reached(); ++i) pause();
    while (!reached()) {
      std::uint32_t seen = kPending;
      if (gate_.compare_exchange_strong(seen, kSleepers, quiet::acq_rel, quiet::acquire) || seen == kSleepers)
        futex_wait(gate_, kSleepers);
    }
    acquire();
  }
  // Nanoseconds of the steady clock.
  std::int64_t time() const { return time_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kPending = 0, kReached = 1, kSleepers = 2;
  // `done_` publishes; `gate_` has the sleepers. Separate, so that a store (and not a read-modify-write) releases:
  // ThreadSanitizer then forgets what an earlier use of this record had released.
  std::atomic<std::uint32_t> gate_{kPending};
  std::atomic<bool> done_{false};
  std::atomic<int> references_{0};
  std::atomic<std::int64_t> time_{0};
};

// One operation in a stream's queue.
struct Task {
  std::atomic<Task*> next{nullptr};
  virtual void run() {}
  virtual ~Task() = default;
};

template <class F>
struct TaskOf final : Task {
  explicit TaskOf(F f) : work(std::move(f)) {}
  void run() override { work(); }
  F work;
};

}  // namespace dagc::host

// A stream: a queue with its own thread. Never freed; destroyed ones are reused.
struct CUstream_st {
 public:
  std::atomic<int> device{0};  // the GPU that was current when it was made; relaxed: a new one may be an old one reopened

  explicit CUstream_st(unsigned int flags) : flags_(flags), head_(new dagc::host::Task), tail_(head_) {
    std::thread([this] { serve(); }).detach();
  }
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  template <class F>
  void push(F work) {
    auto* task = new dagc::host::TaskOf<F>(std::move(work));
    {
      const std::lock_guard<std::mutex> one_issuer(issuers_);
      tail_->next.store(task, std::memory_order_release);
      tail_ = task;
      issued_.fetch_add(1, std::memory_order_relaxed);
    }
    if (bell_.fetch_add(2, dagc::quiet::acq_rel) & kAsleep) {
      bell_.fetch_and(~kAsleep, dagc::quiet::acq_rel);
      dagc::host::futex_wake_all(bell_);
    }
  }

  // Whether all issued work has run; if so, the caller sees its effects.
  bool idle() const {
    const std::uint64_t issued = issued_.load(std::memory_order_relaxed);
    if (finished_.load(std::memory_order_relaxed) != issued) return false;
    return finished_.load(std::memory_order_acquire) >= issued;
  }
  bool used() const { return issued_.load(std::memory_order_relaxed) != 0; }
  bool blocking() const { return (flags_.load(std::memory_order_relaxed) & cudaStreamNonBlocking) == 0; }
  bool open() const { return open_.load(dagc::quiet::acquire); }
  void reopen(unsigned int flags) {
    flags_.store(flags, std::memory_order_relaxed);
    open_.store(true, dagc::quiet::release);
  }
  // Whether it was open.
  bool close() {
    flags_.store(cudaStreamNonBlocking, std::memory_order_relaxed);
    return open_.exchange(false, dagc::quiet::acq_rel);
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;  // bell_: this bit, and twice the number of tasks rung for

  void serve() {
    dagc::make_signal_stack();
    dagc::tsan::Histories histories;
    for (std::uint64_t count = 1;; ++count) {
      dagc::host::Task* task = next();
      delete head_;
      head_ = task;
      histories.run([task] { task->run(); });
      finished_.store(count, std::memory_order_release);
    }
  }

  dagc::host::Task* next() {
    for (int i = 0;; ++i) {
      const std::uint32_t bell = bell_.load(dagc::quiet::acquire);
      if (head_->next.load(std::memory_order_relaxed) != nullptr) return head_->next.load(std::memory_order_acquire);
      if (i < dagc::host::kSpins) {
        dagc::host::pause();
      } else {
        std::uint32_t seen = bell & ~kAsleep;
        if (bell_.compare_exchange_strong(seen, seen | kAsleep, dagc::quiet::acq_rel, std::memory_order_relaxed) ||
            seen == bell)
          dagc::host::futex_wait(bell_, (bell & ~kAsleep) | kAsleep);
      }
    }
  }

  std::atomic<unsigned int> flags_;
  std::atomic<bool> open_{true};
  std::mutex issuers_;  // among issuing threads only
  dagc::host::Task* head_;
  dagc::host::Task* tail_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<std::uint32_t> bell_{0};
};

// An event: its latest recording, and older ones that are still waited for. Never freed; destroyed ones are reused.
struct CUevent_st {
 public:
  std::atomic<int> device{0};  // as of a stream

  explicit CUevent_st(unsigned int flags) : flags_(flags) {}

  void record(CUstream_st& stream) { record_held(stream)->drop(); }

  // Records, and returns the record held once more for the caller.
  dagc::host::Record* record_held(CUstream_st& stream) {
    const std::lock_guard<std::mutex> lock(issuers_);
    if (latest_ != nullptr) latest_->drop();
    latest_ = fresh();
    latest_->reset(3);  // this event, the stream, the caller
    dagc::host::Record* record = latest_;
    stream.push([record] {
      record->complete();
      record->drop();
    });
    return record;
  }

  // The latest recording, held once more for the caller; null: never recorded.
  dagc::host::Record* held() {
    const std::lock_guard<std::mutex> lock(issuers_);
    if (latest_ != nullptr) latest_->hold();
    return latest_;
  }
  bool timed() const { return (flags_.load(std::memory_order_relaxed) & cudaEventDisableTiming) == 0; }
  bool open() const { return open_.load(dagc::quiet::acquire); }
  void reopen(unsigned int flags) {
    flags_.store(flags, std::memory_order_relaxed);
    open_.store(true, dagc::quiet::release);
  }
  // Whether it was open.
  bool close() {
    const std::lock_guard<std::mutex> lock(issuers_);
    if (latest_ != nullptr) latest_->drop();
    latest_ = nullptr;
    return open_.exchange(false, dagc::quiet::acq_rel);
  }

 private:
  dagc::host::Record* fresh() {
    for (const auto& record : records_)
      if (record->unused()) return record.get();
    records_.push_back(std::make_unique<dagc::host::Record>());
    return records_.back().get();
  }

  std::atomic<unsigned int> flags_;
  std::atomic<bool> open_{true};
  std::mutex issuers_;  // among issuing threads only
  dagc::host::Record* latest_ = nullptr;
  std::vector<std::unique_ptr<dagc::host::Record>> records_;
};
