// Flags that ranks set in one another's memory: stored with release, loaded with acquire semantics, at system scope.
#pragma once

#ifndef __CUDACC__
#include <thread>
#endif

#include "dagc/target.hpp"

namespace dagc {

using Flag = unsigned long long;

namespace detail {

#ifdef __CUDACC__
__device__ inline void store_release(Flag* flag, Flag value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
// After `__threadfence_system`, which may stand before the stores to several flags.
__device__ inline void store_fenced(Flag* flag, Flag value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
__device__ inline Flag load_acquire(const Flag* flag) {
  Flag value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void pause() {}
#else
inline void store_release(Flag* flag, Flag value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
inline void store_fenced(Flag* flag, Flag value) { store_release(flag, value); }
inline Flag load_acquire(const Flag* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
inline void pause() { std::this_thread::yield(); }
#endif

// Of a kernel of one block, which leaves its multiprocessor to others.
__device__ inline void spin_until(const Flag* flag, Flag epoch) {
  while (load_acquire(flag) < epoch) pause();
}

}  // namespace detail

}  // namespace dagc
