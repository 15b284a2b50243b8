// Host target: functions of device code: barriers, warp functions, atomics, intrinsics.
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "host_block.hpp"
#include "host_types.hpp"

// ---- barriers -------------------------------------------------------------------------------------------------------

inline void __syncthreads() { dagc::host::block_here("__syncthreads").barrier(0); }
inline int __syncthreads_or(int vote) { return dagc::host::block_here("__syncthreads_or").barrier(vote).any; }
inline int __syncthreads_and(int vote) { return dagc::host::block_here("__syncthreads_and").barrier(vote).all; }
inline int __syncthreads_count(int vote) { return dagc::host::block_here("__syncthreads_count").barrier(vote).count; }

// All threads of a launch run on one thread of the CPU, so their writes are already ordered for one another; for
// others, as in CUDA, only an event or a synchronise makes them visible.
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}

// ---- functions of a warp --------------------------------------------------------------------------------------------

namespace dagc::host {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a warp exchanges numbers of at most 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// `source` in 0..31, or anything else: the caller's own value.
template <class T>
T shuffle(std::uint32_t mask, T value, int source) {
  Block& block = block_here("__shfl_sync");
  const unsigned int from = source >= 0 && source < 32 ? static_cast<unsigned int>(source) : block.lane();
  return from_bits<T>(block.exchange(Wait::shuffle, mask, to_bits(value), from));
}
inline int lane() { return static_cast<int>(block_here("a warp function").lane()); }

template <class T, class F>
T fold(std::uint32_t mask, T value, F) {
  return from_bits<T>(
      block_here("__reduce_sync").exchange(Wait::fold, mask, to_bits(value), 0, [](std::uint64_t a, std::uint64_t b) {
        return to_bits(F{}(from_bits<T>(a), from_bits<T>(b)));
      }));
}

}  // namespace dagc::host

#define DAGC_SHUFFLES(T)                                                                                        \
  inline T __shfl_sync(unsigned int mask, T value, int source, int width = 32) {                                \
    return dagc::host::shuffle(mask, value, (dagc::host::lane() & -width) | (source & (width - 1)));            \
  }                                                                                                             \
  inline T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {                     \
    const int lane = dagc::host::lane(), from = lane - static_cast<int>(delta);                                 \
    return dagc::host::shuffle(mask, value, from < (lane & -width) ? -1 : from);                                \
  }                                                                                                             \
  inline T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {                   \
    const int lane = dagc::host::lane(), from = lane + static_cast<int>(delta);                                 \
    return dagc::host::shuffle(mask, value, from > (lane | (width - 1)) ? -1 : from);                           \
  }                                                                                                             \
  inline T __shfl_xor_sync(unsigned int mask, T value, int bits, int width = 32) {                              \
    const int lane = dagc::host::lane(), from = lane ^ bits;                                                    \
    return dagc::host::shuffle(mask, value, from > (lane | (width - 1)) ? -1 : from);                           \
  }                                                                                                             \
  inline unsigned int __match_any_sync(unsigned int mask, T value) {                                            \
    return static_cast<unsigned int>(dagc::host::block_here("__match_any_sync")                                 \
                                         .exchange(dagc::host::Wait::match, mask, dagc::host::to_bits(value))); \
  }
DAGC_SHUFFLES(int)
DAGC_SHUFFLES(unsigned int)
DAGC_SHUFFLES(long)
DAGC_SHUFFLES(unsigned long)
DAGC_SHUFFLES(long long)
DAGC_SHUFFLES(unsigned long long)
DAGC_SHUFFLES(float)
DAGC_SHUFFLES(double)  // and in host_half.hpp

inline void __syncwarp(unsigned int mask = 0xffffffffu) {
  dagc::host::block_here("__syncwarp").exchange(dagc::host::Wait::sync, mask, 0);
}
inline unsigned int __ballot_sync(unsigned int mask, int vote) {
  return static_cast<unsigned int>(
      dagc::host::block_here("__ballot_sync").exchange(dagc::host::Wait::ballot, mask, vote != 0));
}
inline int __any_sync(unsigned int mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned int mask, int vote) { return __ballot_sync(mask, vote == 0) == 0; }
// All lanes that have not exited: lanes do not run in lockstep here, so there is no narrower answer.
inline unsigned int __activemask() { return dagc::host::block_here("__activemask").live_mask(); }

#define DAGC_REDUCE(function, T, expression)              \
  inline T function(unsigned int mask, T value) {         \
    struct Fold {                                         \
      T operator()(T a, T b) const { return expression; } \
    };                                                    \
    return dagc::host::fold(mask, value, Fold{});         \
  }
DAGC_REDUCE(__reduce_add_sync, unsigned int, a + b)
DAGC_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned int>(a) + static_cast<unsigned int>(b)))
DAGC_REDUCE(__reduce_min_sync, unsigned int, a < b ? a : b)
DAGC_REDUCE(__reduce_min_sync, int, a < b ? a : b)
DAGC_REDUCE(__reduce_max_sync, unsigned int, a < b ? b : a)
DAGC_REDUCE(__reduce_max_sync, int, a < b ? b : a)
DAGC_REDUCE(__reduce_and_sync, unsigned int, a& b)
DAGC_REDUCE(__reduce_or_sync, unsigned int, a | b)
DAGC_REDUCE(__reduce_xor_sync, unsigned int, a ^ b)
#undef DAGC_REDUCE

// ---- atomics: relaxed, as CUDA's ------------------------------------------------------------------------------------

namespace dagc::host {

// Atomically replaces *address by change(*address); returns the old value.
template <class T, class F>
T atomic_change(T* address, F change) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  static_assert(sizeof(T) == sizeof(Bits));
  auto* const bits = reinterpret_cast<Bits*>(address);
  Bits seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    T old, now;
    std::memcpy(&old, &seen, sizeof old);
    now = change(old);
    Bits wanted;
    std::memcpy(&wanted, &now, sizeof wanted);
    if (__atomic_compare_exchange_n(bits, &seen, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}

}  // namespace dagc::host

#define DAGC_ATOMICS_INTEGER(T)                                                                              \
  inline T atomicAdd(T* address, T value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }   \
  inline T atomicExch(T* address, T value) { return __atomic_exchange_n(address, value, __ATOMIC_RELAXED); } \
  inline T atomicAnd(T* address, T value) { return __atomic_fetch_and(address, value, __ATOMIC_RELAXED); }   \
  inline T atomicOr(T* address, T value) { return __atomic_fetch_or(address, value, __ATOMIC_RELAXED); }     \
  inline T atomicXor(T* address, T value) { return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED); }   \
  inline T atomicCAS(T* address, T expected, T value) {                                                      \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
    return expected;                                                                                         \
  }                                                                                                          \
  DAGC_ATOMICS_EXTREME(T)
#define DAGC_ATOMICS_EXTREME(T)                                                                      \
  inline T atomicMin(T* address, T value) {                                                          \
    return dagc::host::atomic_change(address, [value](T old) { return value < old ? value : old; }); \
  }                                                                                                  \
  inline T atomicMax(T* address, T value) {                                                          \
    return dagc::host::atomic_change(address, [value](T old) { return old < value ? value : old; }); \
  }
#define DAGC_ATOMICS_FLOAT(T)                                                          \
  inline T atomicAdd(T* address, T value) {                                            \
    return dagc::host::atomic_change(address, [value](T old) { return old + value; }); \
  }
DAGC_ATOMICS_INTEGER(int)
DAGC_ATOMICS_INTEGER(unsigned int)
DAGC_ATOMICS_INTEGER(unsigned long long)
DAGC_ATOMICS_EXTREME(long long)
DAGC_ATOMICS_FLOAT(float)
DAGC_ATOMICS_FLOAT(double)
#undef DAGC_ATOMICS_INTEGER
#undef DAGC_ATOMICS_EXTREME
#undef DAGC_ATOMICS_FLOAT

inline float atomicExch(float* address, float value) {
  return dagc::host::atomic_change(address, [value](float) { return value; });
}
inline int atomicSub(int* address, int value) { return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED); }
inline unsigned int atomicSub(unsigned int* address, unsigned int value) {
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
inline unsigned int atomicInc(unsigned int* address, unsigned int last) {
  return dagc::host::atomic_change(address, [last](unsigned int old) { return old >= last ? 0u : old + 1; });
}
inline unsigned int atomicDec(unsigned int* address, unsigned int last) {
  return dagc::host::atomic_change(address,
                                   [last](unsigned int old) { return old == 0 || old > last ? last : old - 1; });
}

// Of a block or of the system: all are of the process.
#define DAGC_SCOPED(name)                                                                       \
  template <class T, class... V>                                                                \
  auto name##_system(T* address, V... values) { return name(address, static_cast<T>(values)...); } \
  template <class T, class... V>                                                                \
  auto name##_block(T* address, V... values) { return name(address, static_cast<T>(values)...); }
DAGC_SCOPED(atomicAdd)
DAGC_SCOPED(atomicSub)
DAGC_SCOPED(atomicExch)
DAGC_SCOPED(atomicCAS)
DAGC_SCOPED(atomicMin)
DAGC_SCOPED(atomicMax)
DAGC_SCOPED(atomicAnd)
DAGC_SCOPED(atomicOr)
DAGC_SCOPED(atomicXor)
DAGC_SCOPED(atomicInc)
DAGC_SCOPED(atomicDec)
#undef DAGC_SCOPED

// By the names that compilers' built-in functions have, with a scope: that of the process.
#define __NV_ATOMIC_RELAXED __ATOMIC_RELAXED
#define __NV_ATOMIC_CONSUME __ATOMIC_CONSUME
#define __NV_ATOMIC_ACQUIRE __ATOMIC_ACQUIRE
#define __NV_ATOMIC_RELEASE __ATOMIC_RELEASE
#define __NV_ATOMIC_ACQ_REL __ATOMIC_ACQ_REL
#define __NV_ATOMIC_SEQ_CST __ATOMIC_SEQ_CST
enum { __NV_THREAD_SCOPE_THREAD, __NV_THREAD_SCOPE_BLOCK, __NV_THREAD_SCOPE_DEVICE, __NV_THREAD_SCOPE_SYSTEM };
template <class T>
T __nv_atomic_load_n(T* address, int order, int = __NV_THREAD_SCOPE_SYSTEM) {
  return __atomic_load_n(address, order);
}
template <class T, class V>
void __nv_atomic_store_n(T* address, V value, int order, int = __NV_THREAD_SCOPE_SYSTEM) {
  __atomic_store_n(address, static_cast<T>(value), order);
}
template <class T, class V>
T __nv_atomic_exchange_n(T* address, V value, int order, int = __NV_THREAD_SCOPE_SYSTEM) {
  return __atomic_exchange_n(address, static_cast<T>(value), order);
}
#define DAGC_ATOMIC_FETCH(name)                                                                 \
  template <class T, class V>                                                                   \
  T __nv_atomic_##name(T* address, V value, int order, int = __NV_THREAD_SCOPE_SYSTEM) {        \
    return __atomic_##name(address, static_cast<T>(value), order);                              \
  }
DAGC_ATOMIC_FETCH(fetch_add)
DAGC_ATOMIC_FETCH(fetch_sub)
DAGC_ATOMIC_FETCH(fetch_and)
DAGC_ATOMIC_FETCH(fetch_or)
DAGC_ATOMIC_FETCH(fetch_xor)
#undef DAGC_ATOMIC_FETCH

// ---- memory, bits, time ---------------------------------------------------------------------------------------------

#define DAGC_LOAD(name)       \
  template <class T>          \
  T name(const T* address) {  \
    return *address;          \
  }
#define DAGC_STORE(name)                 \
  template <class T, class V>            \
  void name(T* address, V value) {       \
    *address = static_cast<T>(value);    \
  }
DAGC_LOAD(__ldg)
DAGC_LOAD(__ldca)
DAGC_LOAD(__ldcg)
DAGC_LOAD(__ldcs)
DAGC_LOAD(__ldcv)
DAGC_LOAD(__ldlu)
DAGC_STORE(__stcg)
DAGC_STORE(__stcs)
DAGC_STORE(__stwb)
DAGC_STORE(__stwt)
#undef DAGC_LOAD
#undef DAGC_STORE

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned int __brev(unsigned int x) {
  unsigned int reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline int __mul24(int a, int b) { return static_cast<int>((static_cast<long long>(a << 8 >> 8)) * (b << 8 >> 8)); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}

inline int __float_as_int(float x) { return dagc::host::from_bits<int>(dagc::host::to_bits(x)); }
inline unsigned int __float_as_uint(float x) { return dagc::host::from_bits<unsigned int>(dagc::host::to_bits(x)); }
inline float __int_as_float(int x) { return dagc::host::from_bits<float>(dagc::host::to_bits(x)); }
inline float __uint_as_float(unsigned int x) { return dagc::host::from_bits<float>(dagc::host::to_bits(x)); }
inline long long __double_as_longlong(double x) { return dagc::host::from_bits<long long>(dagc::host::to_bits(x)); }
inline double __longlong_as_double(long long x) { return dagc::host::from_bits<double>(dagc::host::to_bits(x)); }

// Nanoseconds: the host has no GPU clock.
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline void __nanosleep(unsigned int) {}
[[noreturn]] inline void __trap() { dagc::host::fatal("__trap called in a kernel"); }
