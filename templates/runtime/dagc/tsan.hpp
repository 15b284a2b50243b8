// ThreadSanitizer: accesses that it cannot see are declared, orders that CUDA does not guarantee are hidden.
// Without -fsanitize=thread all of it compiles to nothing.
//
// For each thread, and each of its fibers, the tool keeps a history: the last (2 + history_size) * 32768 accesses,
// function entries and exits. Since GCC 13 and Clang 14 it drops a race, without a report, if the earlier access has
// left that history; it then also drops races with other accesses of the same epoch (the time between two releases of
// the thread); and an access to a range ends at its first race, reported or not. Hence
//   history_size is 7, the most, unless TSAN_OPTIONS says otherwise (__tsan_default_options);
//   operations of a stream run on several fibers in turn: later ones do not displace those before (Histories);
//   the blocks of a launch run in several epochs (new_epoch);
//   ranges are accessed piece by piece (kPiece).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define DAGC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DAGC_TSAN 1
#endif
#endif
#ifndef DAGC_TSAN
#define DAGC_TSAN 0
#endif

#if DAGC_TSAN
#include <sanitizer/tsan_interface.h>

extern "C" {
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
// Called by the tool when the program starts. Weak: a program may define its own.
__attribute__((weak, used, no_sanitize("thread"))) const char* __tsan_default_options() { return "history_size=7"; }
}
#endif

namespace dagc::tsan {

// Size of one access: a page under the tool, else everything.
inline constexpr std::size_t kPiece = DAGC_TSAN ? 4096 : SIZE_MAX;

// `access(offset, bytes)` for each piece of a range of `bytes` bytes.
template <class Access>
void for_each_piece(std::size_t bytes, const Access& access) {
  for (std::size_t offset = 0; offset < bytes;) {
    std::size_t piece = bytes - offset < kPiece ? bytes - offset : kPiece;
#if DAGC_TSAN
    __asm__("" : "+r"(piece));  // compilers turn a short memcpy of known size into instructions, which the tool does not see
#endif
    access(offset, piece);
    offset += piece;
  }
}

#if DAGC_TSAN

// The calling thread reads, or writes, `bytes` bytes at `pointer`. Not instrumented, and part of its caller: a report shows
// the range, and the function that accesses it.
__attribute__((always_inline, no_sanitize("thread"))) inline void access_range(const void* pointer, std::size_t bytes,
                                                                               bool write) {
  for (std::size_t offset = 0; offset < bytes; offset += kPiece) {
    char* const piece = static_cast<char*>(const_cast<void*>(pointer)) + offset;
    const std::size_t size = bytes - offset < kPiece ? bytes - offset : kPiece;
    if (write)
      __tsan_write_range(piece, size);
    else
      __tsan_read_range(piece, size);
  }
}

// Starts a new epoch of the calling thread. Orders nothing: the release has no acquire.
inline void new_epoch() {
  static thread_local char nobody;
  __tsan_release(&nobody);
}

// Histories of one thread, used in turn. Calls of `run` are ordered by the thread.
class Histories {
 public:
  template <class Work>
  void run(const Work& work) {
    void* const thread = __tsan_get_current_fiber();
    void*& fiber = fibers_[next_];
    next_ = (next_ + 1) % kFibers;
    if (fiber == nullptr) fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(fiber, 0);
    work();
    __tsan_switch_to_fiber(thread, 0);
  }

 private:
  static constexpr std::size_t kFibers = 8;  // of at most 2.3 MB each; never destroyed, like streams
  void* fibers_[kFibers] = {};
  std::size_t next_ = 0;
};

#else

inline void access_range(const void*, std::size_t, bool) {}
inline void new_epoch() {}

struct Histories {
  template <class Work>
  void run(const Work& work) {
    work();
  }
};

#endif

}  // namespace dagc::tsan

// A library that is not instrumented (MPI) reads or writes `bytes` bytes at `pointer`.
#define DAGC_TSAN_READ(pointer, bytes) ::dagc::tsan::access_range(pointer, bytes, false)
#define DAGC_TSAN_WRITE(pointer, bytes) ::dagc::tsan::access_range(pointer, bytes, true)

namespace dagc::quiet {

// Memory orders of the host target's own bookkeeping (queues, sleeping, reference counts). The hardware needs them;
// ThreadSanitizer must not see them, or a queue that is merely shared would count as a synchronisation that CUDA does
// not give, and a missing one would not be reported. Under ThreadSanitizer they are relaxed, which is enough there: its
// atomics are calls, which the compiler does not reorder, and it runs on strongly ordered machines or with full
// barriers in read-modify-writes.
inline constexpr std::memory_order acquire = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_acquire;
inline constexpr std::memory_order release = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_release;
inline constexpr std::memory_order acq_rel = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_acq_rel;

}  // namespace dagc::quiet
