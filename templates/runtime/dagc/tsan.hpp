// ThreadSanitizer: telling it what it cannot see, and keeping from it what CUDA does not promise.
#pragma once

#include <atomic>
#include <cstddef>

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
extern "C" {
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
}
// A library that is not instrumented (MPI) reads or writes `bytes` bytes at `pointer`.
#define DAGC_TSAN_READ(pointer, bytes) \
  __tsan_read_range(const_cast<void*>(static_cast<const void*>(pointer)), static_cast<unsigned long>(bytes))
#define DAGC_TSAN_WRITE(pointer, bytes) \
  __tsan_write_range(const_cast<void*>(static_cast<const void*>(pointer)), static_cast<unsigned long>(bytes))
#else
#define DAGC_TSAN_READ(pointer, bytes) (static_cast<void>(pointer), static_cast<void>(bytes))
#define DAGC_TSAN_WRITE(pointer, bytes) (static_cast<void>(pointer), static_cast<void>(bytes))
#endif

namespace dagc::quiet {

// Memory orders of the host target's own bookkeeping (queues, sleeping, reference counts). The hardware needs them;
// ThreadSanitizer must not see them, or a queue that is merely shared would count as a synchronisation that CUDA does
// not give, and a missing one would go unreported. Under ThreadSanitizer they are relaxed, which is enough there: its
// atomics are calls, which the compiler does not reorder, and it runs on strongly ordered machines or with full
// barriers in read-modify-writes.
inline constexpr std::memory_order acquire = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_acquire;
inline constexpr std::memory_order release = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_release;
inline constexpr std::memory_order acq_rel = DAGC_TSAN ? std::memory_order_relaxed : std::memory_order_acq_rel;

}  // namespace dagc::quiet
