// Reductions by kernels: each rank writes its elements into the memory of the others, which add them.
//
// An element travels with the number of the reduction (its epoch) in one store: words of 64 bits with 32 bits of data
// each. Whoever waits for an element polls it alone, without flags, fences and barriers.
//
//   one shot    every rank sends all its elements to all others, and each adds them. For few elements.
//   two shots   rank r adds the elements of share r, which the others send it, and sends the sums to them
//
// Order: ((x0 + x1) + x2) + ..., by rank, in both. All ranks have the same bits, in every run.
//
// Reuse of the memory: the threads of a number handle the same elements on all ranks. One shot: there are two inboxes,
// used in turn. A thread writes into that of reduction e once it has its elements of e - 1, which the others sent after
// the end of e - 2; so every thread needs an element of each piece (`PeerShape`). Two shots: a rank sends elements after it has all sums of the reduction before, and so after they
// were added; it sends sums after it has all elements, and so after the sums before were read there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifndef __CUDACC__
#include <thread>
#endif

#include "dagc/flags.hpp"
#include "dagc/target.hpp"
#include "dagc/waiting.hpp"

namespace dagc {

constexpr int peer_most_ranks = 8;  // of a reduction
constexpr unsigned int peer_threads = 512;

// Of one reduction on one rank. `epoch` and `finished` are in device memory.
struct PeerReduction {
  Flag* inbox[peer_most_ranks];  // of each rank
  Flag* epoch;
  Flag* finished;      // blocks that have done their part of this run
  std::int64_t piece;  // most elements that are reduced at a time
  int rank, ranks;
  bool two_shots;
};

#if DAGC_HAS_KERNELS
namespace peer {

template <class T>
constexpr int words = sizeof(T) > 4 ? 2 : 1;  // of an element

#ifdef __CUDACC__
__device__ inline void store(Flag* to, Flag a) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(a) : "memory");
}
__device__ inline void store(Flag* to, Flag a, Flag b) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
__device__ inline void load(const Flag* from, Flag& a) {
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(a) : "l"(from) : "memory");
}
__device__ inline void load(const Flag* from, Flag& a, Flag& b) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
__device__ inline void pause() { __nanosleep(200); }
#else  // for tests, whose ranks are streams of one process
inline void store(Flag* to, Flag a) { __atomic_store_n(to, a, __ATOMIC_RELAXED); }
inline void store(Flag* to, Flag a, Flag b) {
  store(to, a);
  store(to + 1, b);
}
inline void load(const Flag* from, Flag& a) { a = __atomic_load_n(from, __ATOMIC_RELAXED); }
inline void load(const Flag* from, Flag& a, Flag& b) {
  load(from, a);
  load(from + 1, b);
}
inline void pause() { std::this_thread::yield(); }
#endif

template <class T>
__device__ void put(Flag* to, T value, unsigned int epoch) {
  unsigned int bits[2] = {};
  memcpy(bits, &value, sizeof value);
  const Flag tag = static_cast<Flag>(epoch) << 32;
  if constexpr (words<T> == 2) store(to, tag | bits[0], tag | bits[1]);
  else store(to, tag | bits[0]);
}

template <class T>
__device__ T take(const Flag* from, unsigned int epoch) {
  Flag low = 0, high = 0;
  for (unsigned int tries = 0;; ++tries) {
    if constexpr (words<T> == 2) load(from, low, high);
    else load(from, low);
    if (low >> 32 == epoch && (words<T> == 1 || high >> 32 == epoch)) break;
    if (tries > 1000) pause();  // another rank is late, and may need this GPU
  }
  const unsigned int bits[2] = {static_cast<unsigned int>(low), static_cast<unsigned int>(high)};
  T value;
  memcpy(&value, bits, sizeof value);
  return value;
}

// Calls f(rank) for the other ranks, the next one first, so that not all write to the same GPU at once.
template <class F>
__device__ void for_others(const PeerReduction& all, F f) {
  for (int k = 1; k < all.ranks; ++k) f((all.rank + k) % all.ranks);
}

// The sum of `mine` and of the elements at at(rank) of the other ranks, in the order of the ranks.
template <class T, class Op, class At>
__device__ T in_order(const PeerReduction& all, T mine, unsigned int epoch, Op op, At at) {
  T sum = all.rank == 0 ? mine : take<T>(at(0), epoch);
  for (int r = 1; r < all.ranks; ++r) sum = op(sum, r == all.rank ? mine : take<T>(at(r), epoch));
  return sum;
}

template <class T, class Op>
__device__ void one_shot(const PeerReduction& all, const T* from, T* to, std::int64_t n, unsigned int epoch, Op op, std::int64_t first,
                         std::int64_t step) {
  const auto slot = [&](int owner, int sender, std::int64_t i) {
    return all.inbox[owner] + ((epoch % 2 * all.ranks + sender) * all.piece + i) * words<T>;
  };
  for (std::int64_t i = first; i < n; i += step)
    for_others(all, [&](int other) { put(slot(other, all.rank, i), from[i], epoch); });
  for (std::int64_t i = first; i < n; i += step) {
    const T sum = in_order(all, from[i], epoch, op, [&](int r) { return slot(all.rank, r, i); });
    if (to != nullptr) to[i] = sum;
  }
}

template <class T, class Op>
__device__ void two_shots(const PeerReduction& all, const T* from, T* to, std::int64_t n, unsigned int epoch, Op op, std::int64_t first,
                         std::int64_t step) {
  const std::int64_t most = (all.piece + all.ranks - 1) / all.ranks, share = (n + all.ranks - 1) / all.ranks;
  const auto slot = [&](int owner, int sender, std::int64_t j) { return all.inbox[owner] + (sender * most + j) * words<T>; };
  const auto result = [&](int owner, std::int64_t i) { return all.inbox[owner] + (all.ranks * most + i) * words<T>; };
  for (std::int64_t j = first; j < share; j += step)
    for_others(all, [&](int other) {
      if (const std::int64_t i = other * share + j; i < n) put(slot(other, all.rank, j), from[i], epoch);
    });
  for (std::int64_t j = first; j < share; j += step) {
    const std::int64_t i = all.rank * share + j;
    if (i >= n) break;
    const T sum = in_order(all, from[i], epoch, op, [&](int r) { return slot(all.rank, r, j); });
    if (to != nullptr) to[i] = sum;
    for_others(all, [&](int other) { put(result(other, i), sum, epoch); });
  }
  for (std::int64_t j = first; j < share; j += step)
    for_others(all, [&](int other) {
      if (const std::int64_t i = other * share + j; i < n) {
        const T sum = take<T>(result(all.rank, i), epoch);
        if (to != nullptr) to[i] = sum;
      }
    });
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const { return static_cast<T>(a + b); }
};
struct Product {
  template <class T>
  __device__ T operator()(T a, T b) const { return static_cast<T>(a * b); }
};
// NaN, where one of both is: a residual that is none must not be hidden by those of other ranks.
struct Least {
  template <class T>
  __device__ T operator()(T a, T b) const { return b < a || !(b == b) ? b : a; }
};
struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const { return a < b || !(b == b) ? b : a; }
};

// Block `block` of `blocks`, which all threads of a block call together. `to` may be `from`; null on ranks that do not need
// the result.
template <class T, class Op>
__device__ void reduce_block(const PeerReduction& all, const T* from, T* to, std::int64_t count, Op op, unsigned int block,
                             unsigned int blocks) {
  const unsigned int threads = threads_of_block() < peer_threads ? threads_of_block() : peer_threads, me = thread_in_block();
  const std::int64_t first = static_cast<std::int64_t>(block) * threads + me, step = static_cast<std::int64_t>(blocks) * threads;
  Flag epoch = *static_cast<volatile Flag*>(all.epoch);
  // Of sizes that differ by one at most. One piece needs no division, which takes long.
  const std::int64_t pieces = count <= all.piece ? 1 : (count + all.piece - 1) / all.piece;
  for (std::int64_t k = 0; k < pieces; ++k) {
    const std::int64_t start = pieces == 1 ? 0 : k * count / pieces;
    const std::int64_t n = (pieces == 1 ? count : (k + 1) * count / pieces) - start;
    const unsigned int number = static_cast<unsigned int>(++epoch);
    T* const into = to == nullptr ? nullptr : to + start;
    if (me >= threads) continue;
    if (all.two_shots)
      two_shots(all, from + start, into, n, number, op, first, step);
    else
      one_shot(all, from + start, into, n, number, op, first, step);
  }
  __syncthreads();
  if (me != 0 || (blocks > 1 && atomicAdd(all.finished, 1ull) != blocks - 1)) return;
  *all.finished = 0;
  *all.epoch = epoch;
}

template <class T, class Op>
static __global__ void __launch_bounds__(peer_threads, 2)
    reduce(const __grid_constant__ PeerReduction all, const T* from, T* to, std::int64_t count, Op op) {
  wait_for_dependencies();
  reduce_block(all, from, to, count, op, blockIdx.x, gridDim.x);
}

}  // namespace peer
#endif

// How many elements are reduced at a time, how, and by how many blocks. Two shots send less where there are more than two
// ranks, and wait twice: on one H200 that ranks share as streams, one shot took less time up to 1 MiB.
class PeerShape {
 public:
  PeerShape(std::int64_t count, std::int64_t size, int ranks)
      : PeerShape(count, ranks, ranks > 2 && count * size * (ranks - 1) > kOneShot) {}
  PeerShape(std::int64_t count, int ranks, bool in_two_shots)
      : two_shots(in_two_shots),
        piece(std::max<std::int64_t>(1, divided(count, divided(count, kPiece)))),
        slots(two_shots ? 2 * piece + ranks : 2 * ranks * piece),
        blocks(static_cast<unsigned int>(std::min(kBlocks, divided(two_shots ? divided(piece, ranks) : piece, peer_threads)))) {}

  bool two_shots;
  std::int64_t piece;
  std::int64_t slots;  // elements of an inbox
  unsigned int blocks;

 private:
  static std::int64_t divided(std::int64_t a, std::int64_t b) { return b > 0 ? (a + b - 1) / b : 0; }
  static constexpr std::int64_t kOneShot = 1 << 20;  // bytes that a rank sends
  static constexpr std::int64_t kPiece = 128 << 10;  // elements
  static constexpr std::int64_t kBlocks = 64;
  static_assert(kBlocks * peer_threads <= kPiece / 2, "a thread has an element of each of several pieces");
};

}  // namespace dagc
