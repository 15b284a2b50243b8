// Annotations of message buffers for ThreadSanitizer. Without -fsanitize=thread all of it compiles to nothing.
//
// MPI reads a send buffer, and writes a receive buffer, at any time between post and wait: in the post, in the wait,
// or while another call makes progress. The tool sees some of these accesses and misses others (a large message
// goes through the kernel or a device), and sees them in a thread that is ordered with more than the message is.
// So MPI's own accesses are hidden (`Ignore`), and each message is modelled by a thread of its own (a TSan fiber):
//   post: the CPU releases to the message; the message accesses the buffer;
//   wait: the message accesses the buffer again; the message releases to the CPU.
// Two accesses, since the tool compares an access with earlier ones only. So all other accesses of the buffer must be
// ordered before the post or after the wait, for any timing; the message orders nothing else.
#pragma once

#include <cstddef>

#include "dagc/tsan.hpp"

#if DAGC_TSAN
#include <vector>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace dagc::tsan {

#if DAGC_TSAN

// During its lifetime, accesses of this thread are ignored.
struct Ignore {
  Ignore() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Ignore() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Ignore(const Ignore&) = delete;
  Ignore& operator=(const Ignore&) = delete;
};

// The messages between a post and its wait. One object is used by one thread.
class InFlight {
 public:
  InFlight() = default;
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    for (const Entry& e : entries_) __tsan_destroy_fiber(e.fiber);
  }

  void post_read(const void* buffer, std::size_t bytes) { post(const_cast<void*>(buffer), bytes, false); }
  void post_write(void* buffer, std::size_t bytes) { post(buffer, bytes, true); }

  // Call after MPI has completed them all.
  void wait_all() {
    for (std::size_t i = 0; i < used_; ++i) {
      const Entry& e = entries_[i];
      access(e.fiber, e.buffer, e.bytes, e.write, __tsan_switch_to_fiber_no_sync, 0);
    }
    used_ = 0;
  }

 private:
  struct Entry {
    void* fiber;
    void* buffer;
    std::size_t bytes;
    bool write;
  };

  // Fibers are reused: creating one costs far more than switching to it.
  void post(void* buffer, std::size_t bytes, bool write) {
    if (used_ == entries_.size()) entries_.push_back({__tsan_create_fiber(0), nullptr, 0, false});
    Entry& e = entries_[used_++];
    e = {e.fiber, buffer, bytes, write};
    __tsan_set_fiber_name(e.fiber, write ? "MPI receive" : "MPI send");
    access(e.fiber, buffer, bytes, write, 0, __tsan_switch_to_fiber_no_sync);
  }

  // The message's access. No other access may be visible between the switches: it would count as the message's.
  __attribute__((noinline, no_sanitize("thread"))) static void access(void* fiber, void* buffer, std::size_t bytes,
                                                                      bool write, unsigned there, unsigned back) {
    if (bytes == 0) return;
    void* cpu = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, there);
    access_range(buffer, bytes, write);
    __tsan_switch_to_fiber(cpu, back);
  }

  std::vector<Entry> entries_;
  std::size_t used_ = 0;
};

#else

struct Ignore {
  Ignore() {}  // not defaulted, so that compilers do not report a scope guard as unused
};

class InFlight {
 public:
  void post_read(const void*, std::size_t) {}
  void post_write(void*, std::size_t) {}
  void wait_all() {}
};

#endif

}  // namespace dagc::tsan
