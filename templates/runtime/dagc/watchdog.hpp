// Ends a rank whose work hangs, after reporting in which op:
//
//   dagc: hang: rank 1 in op `wait_recv`
//
//   dagc::Watchdog watchdog(rank, 20.0);                    // seconds
//   watchdog.watched([&] { iteration(p); })
//
// Ranks begin an iteration together, so all that hang detect it together; each writes its line before any of them ends the
// others. Only the thread that made the watchdog is watched.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include <mpi.h>

#include "dagc/check.hpp"
#include "dagc/fault.hpp"
#include "dagc/tsan.hpp"

namespace dagc {

class Watchdog {
 public:
  // Work longer than `seconds` is a hang (detected at most an eighth later); 0: no limit.
  Watchdog(int rank, double seconds) : rank_(rank), seconds_(seconds), op_(&op_under_way) {
    if (seconds > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Watchdog() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Two stores around the work.
  template <class Work>
  void watched(Work work) {
    step();
    work();
    step();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void step() { steps_.store(steps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }  // odd: at work

  void watch() {
    std::uint64_t seen = 0;
    Clock::time_point since = Clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ended_) {
      // ThreadSanitizer knows waits by this clock.
      changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::microseconds>(
                                                                       std::chrono::duration<double>(seconds_ / 8)));
      const std::uint64_t now = steps_.load(std::memory_order_relaxed);
      if (now != seen || now % 2 == 0) {
        seen = now;
        since = Clock::now();
      } else if (std::chrono::duration<double>(Clock::now() - since).count() >= seconds_) {
        end();
      }
    }
  }

  [[noreturn]] void end() const {
    const char* const op = op_->load(std::memory_order_relaxed);
    std::fflush(stdout);
    std::fprintf(stderr, "dagc: hang: rank %d in %s\n", rank_, op != nullptr ? op : "no op: before or after the ops of an iteration");
    std::fflush(stderr);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the other ranks write theirs, and the starter reads them
    const tsan::Ignore ignore;
    MPI_Abort(MPI_COMM_WORLD, exit_run_failed);
    std::_Exit(exit_run_failed);
  }

  const int rank_;
  const double seconds_;
  const std::atomic<const char*>* const op_;  // of the watched thread
  std::atomic<std::uint64_t> steps_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace dagc
