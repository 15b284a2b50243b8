// Messages that the kernel which computes them writes into the memory of the receiver: no copy, no launch of a copy.
//
// In a kernel whose array `y` is sent, `y` is a `PutArray`: each store is made here and, if the element belongs to a
// message, in the memory of the rank that receives it too. When the last block has ended, the kernel sets a flag there for
// each message.
//
//   put_free     a barrier of all ranks: those that end it know that the others have read what is written next
//   the kernel   writes; its last block sets arrived = run at each receiver
//   put_await    ends when what this rank receives has arrived; or the kernel that reads it begins with `put_wait`
//
// A message is awaited by a number of runs: that of the kernel which sends the message of the same number here, and which
// completes before. All ranks run the same, so it is that of the sender's kernel.
//
// Memory model: the writes of a block are ordered before the counter of blocks by the barrier of the block and a fence. The last
// block has seen all of them when, after a fence at system scope, it sets the flags, which are loaded with acquire semantics.
//
// Deadlock: `put_free` and `put_await` are one block each. `put_free` waits for the same on other ranks, the others for kernels
// that are issued before them there (docs/explanation/transports.md).
#pragma once

#include <cstdint>

#include "dagc/flags.hpp"
#include "dagc/target.hpp"
#include "dagc/waiting.hpp"
#include "dagc/wide.hpp"

namespace dagc {

// A message. Elements first <= i < last of the array that is stored to go to `to`; none if there is no receiver.
struct PutPart {
  std::int64_t first, last;
  void* to;            // in the memory of the receiver
  Flag* arrived;       // there
  Flag *run, *ended;   // here: runs of kernels that send it, and blocks that have ended in this one
};

// Those of a kernel.
template <int N>
struct Put {
  PutPart part[N];
};

template <class... Parts>
Put<sizeof...(Parts)> puts(const Parts&... parts) {
  return {{parts...}};
}

#if DAGC_HAS_KERNELS
template <class T, int N>
class PutArray;

// Where an element is: `&y[i]`.
template <class T, int N>
struct PutPlace {
  const PutArray<T, N>& array;
  std::int64_t i;
};

// In place of an array, of which N messages are sent. It can be stored to, and not read.
template <class T, int N>
class PutArray {
 public:
  __device__ PutArray(T* here, const PutPart* parts) : here_(here) {
    for (int p = 0; p < N; ++p) first_[p] = parts[p].first, last_[p] = parts[p].last, to_[p] = static_cast<T*>(parts[p].to);
  }

  class Element {
   public:
    __device__ Element(const PutArray& array, std::int64_t i) : array_(array), i_(i) {}
    __device__ T operator=(T value) const {
      array_.here_[i_] = value;
      for (int p = 0; p < N; ++p)
        if (i_ >= array_.first_[p] && i_ < array_.last_[p]) array_.to_[p][i_ - array_.first_[p]] = value;
      return value;
    }
    __device__ PutPlace<T, N> operator&() const { return {array_, i_}; }

   private:
    const PutArray& array_;
    std::int64_t i_;
  };
  template <class Index>
  __device__ Element operator[](Index i) const {
    return Element(*this, static_cast<std::int64_t>(i));
  }

  // Elements i to i + V - 1, which begin a Vector here.
  template <int V>
  __device__ void store(std::int64_t i, const Vector<T, V>& values) const {
    dagc::store<V>(here_ + i, values);
    for (int p = 0; p < N; ++p) {
      if (i + V <= first_[p] || i >= last_[p]) continue;
      T* const to = to_[p] + (i - first_[p]);
      if (i >= first_[p] && i + V <= last_[p] && aligned<V>(to)) {
        dagc::store<V>(to, values);
        continue;
      }
      for (int lane = 0; lane < V; ++lane)
        if (i + lane >= first_[p] && i + lane < last_[p]) to[lane] = values[lane];
    }
  }
  __device__ const T* here() const { return here_; }

 private:
  T* here_;
  std::int64_t first_[N], last_[N];
  T* to_[N];
};

template <int V, class T, int N>
__device__ void store(const PutPlace<T, N>& at, const Vector<T, V>& values) {
  at.array.template store<V>(at.i, values);
}

template <int V, class T, int N>
__device__ void store(const PutPlace<T, N>& at, const Vector<T, V>& values, unsigned own) {
  if (all<V>(own)) return store(at, values);
  for (int lane = 0; lane < V; ++lane)
    if (own >> lane & 1) at.array[at.i + lane] = values[lane];
}

template <class T, int N>
__device__ const T* begin_of(const PutArray<T, N>& array) {
  return array.here();
}

// That of the messages of these numbers among those of the kernel.
template <int first, int N, class T, int M>
__device__ PutArray<T, N> put_array(T* here, const Put<M>& put) {
  static_assert(first + N <= M);
  return {here, put.part + first};
}

// At the end of its scope, the body of the kernel: the messages are complete once all blocks that `count` have come there. Of a
// launch that joins several these are the `blocks` of those that send, or use what other ranks send; all if there are none. Threads
// may come from different places, so the wait is not that of `__syncthreads`, for which the threads of a warp must be together; but
// it is of the same barrier, on which no thread waits then (a kernel with `return` has no `__syncthreads`): from compute capability 9.0
// on, a multiprocessor has 64 barriers, and a kernel that names barrier 15 has 16 of them in each block, so 4 blocks.
template <int N>
class PutEnd {
 public:
  __device__ explicit PutEnd(const Put<N>& put) : PutEnd(put, true, 0) {}
  __device__ PutEnd(const Put<N>& put, bool counts, unsigned int blocks)
      : put_(put), counts_(counts || blocks == 0), blocks_(blocks == 0 ? gridDim.x * gridDim.y * gridDim.z : blocks) {
    if (counts_ && blocks_ <= kFew && thread_in_block() == 0) load();  // arrives during the body
  }
  PutEnd(const PutEnd&) = delete;
  PutEnd& operator=(const PutEnd&) = delete;
  __device__ ~PutEnd() {
    if (!counts_) return;
#ifdef __CUDACC__
    asm volatile("barrier.sync 0;" ::: "memory");
#else
    __syncthreads();
#endif
    if (thread_in_block() != 0) return;
    Flag* ended = nullptr;
    for (int p = 0; p < N && ended == nullptr; ++p)
      if (put_.part[p].run != nullptr) ended = put_.part[p].ended;
    if (ended == nullptr) return;
    if (blocks_ > 1) {
      __threadfence();
      if (atomicAdd(ended, Flag{1}) != blocks_ - 1) return;
      *ended = 0;
      if (blocks_ > kFew) load();
    }
    __threadfence_system();
    for (int p = 0; p < N; ++p)
      if (put_.part[p].arrived != nullptr) detail::store_fenced(put_.part[p].arrived, run_[p]);
    for (int p = 0; p < N; ++p)
      if (put_.part[p].run != nullptr) *put_.part[p].run = run_[p];
  }

 private:
  // Blocks that may all load the same numbers: of many, the last one alone does.
  static constexpr unsigned int kFew = 64;

  __device__ void load() {
    for (int p = 0; p < N; ++p)
      if (put_.part[p].run != nullptr) run_[p] = *static_cast<volatile Flag*>(put_.part[p].run) + 1;
  }

  const Put<N>& put_;
  const bool counts_;
  const unsigned int blocks_;
  Flag run_[N];
};
#endif

// A message that this rank receives; none without `arrived`.
struct PutArrival {
  const Flag *arrived, *run;
};

#if DAGC_HAS_KERNELS
namespace detail {

__device__ inline void wait_for(const PutArrival& message) {
  if (message.arrived != nullptr) spin_until(message.arrived, *static_cast<const volatile Flag*>(message.run));
}

}  // namespace detail
#endif

// Those that a kernel waits for.
template <int N>
struct PutWait {
  PutArrival part[N];
};

template <class... Arrivals>
PutWait<sizeof...(Arrivals)> put_waits(const Arrivals&... arrivals) {
  return {{arrivals...}};
}

#if DAGC_HAS_KERNELS
// All threads of each block call it at their start. Of a launch that joins several, blocks wait for the messages of a bit in
// `which`, and the first one for all, so that all have arrived where the kernel has completed.
template <int N>
__device__ void put_wait(const PutWait<N>& awaited, unsigned int which = ~0U) {
  if (blockIdx.x + blockIdx.y + blockIdx.z == 0) which = ~0U;
  if (which == 0) return;
  const unsigned int me = thread_in_block(), threads = threads_of_block();
  // Unrolled: with an index that is not a constant, each thread would copy the parameter of the kernel to local memory.
#ifdef __CUDACC__
#pragma unroll
#endif
  for (unsigned int m = 0; m < N; ++m) {
    const bool mine = m == me || (m >= threads && m % threads == me);
    if (mine && (N > 32 || (which >> m % 32 & 1U) != 0)) detail::wait_for(awaited.part[m]);
  }
  __syncthreads();
}

#endif

constexpr int put_threads = 32;  // of the kernels that wait

struct PutFree {
  Flag* const* theirs;
  const Flag* here;
  Flag* run;
  int ranks;
};

DAGC_LAUNCHER void issue_free(const PutFree& all, cudaStream_t stream);
DAGC_LAUNCHER void issue_await(const PutArrival* awaited, int messages, cudaStream_t stream);

#if DAGC_HAS_KERNELS
// `theirs`: the flag of this rank in the memory of each; `here`: those of each rank in the memory of this one. By a block.
__device__ inline void free_block(const PutFree& all) {
  const int me = static_cast<int>(thread_in_block()), threads = static_cast<int>(threads_of_block());
  const Flag now = *static_cast<volatile Flag*>(all.run) + 1;
  for (int r = me; r < all.ranks; r += threads) detail::store_release(all.theirs[r], now);
  for (int r = me; r < all.ranks; r += threads) detail::spin_until(all.here + r, now);
  __syncthreads();
  if (me == 0) *all.run = now;
}

static __global__ void put_free(const PutFree all) {
  wait_for_dependencies();
  free_block(all);
}

static __global__ void put_await(const PutArrival* awaited, int messages) {
  wait_for_dependencies();
  for (int m = static_cast<int>(threadIdx.x); m < messages; m += put_threads) detail::wait_for(awaited[m]);
}

DAGC_LAUNCHER void issue_free(const PutFree& all, cudaStream_t stream) {
  WaitingKernels::also(put_free);
  launch(put_free, dim3(1), dim3(put_threads), 0, stream, all);
}

DAGC_LAUNCHER void issue_await(const PutArrival* awaited, int messages, cudaStream_t stream) {
  WaitingKernels::also(put_await);
  launch(put_await, dim3(1), dim3(put_threads), 0, stream, awaited, messages);
}

// Within a kernel that repeats iterations (one_kernel.hpp): all of it, whose blocks have waited for each other before.
DAGC_KERNELS_BEGIN

__device__ inline void free_within(const PutFree& all) {
  if (blockIdx.x == 0) free_block(all);
}

DAGC_KERNELS_END
#endif

// Messages that have been stored. `sent`: the flags at the receivers; `run`: two flags of each message, of which the first counts
// the runs before this kernel.
struct PutWithin {
  Flag* const* sent;
  const PutArrival* awaited;
  Flag* run;
  int sends, recvs, messages;
};

#if DAGC_HAS_KERNELS
DAGC_KERNELS_BEGIN

namespace detail {

__device__ inline Flag runs_of(const PutWithin& group, std::int64_t number) {
  return *static_cast<volatile Flag*>(group.run) + static_cast<Flag>(number);
}

}  // namespace detail

// The `number`-th time in this kernel.
__device__ inline void signal_within(const PutWithin& group, std::int64_t number) {
  if (blockIdx.x != 0 || thread_in_block() != 0 || group.sends == 0) return;
  const Flag now = detail::runs_of(group, number);
  __threadfence_system();
  for (int m = 0; m < group.sends; ++m) detail::store_fenced(group.sent[m], now);
}

// Each block waits for what this rank receives.
__device__ inline void await_within(const PutWithin& group, std::int64_t number) {
  const int me = static_cast<int>(thread_in_block()), threads = static_cast<int>(threads_of_block());
  for (int m = me; m < group.recvs; m += threads)
    detail::spin_until(group.awaited[m].arrived, detail::runs_of(group, number));
  __syncthreads();
}

// After all.
__device__ inline void put_ran(const PutWithin& group, std::int64_t times) {
  if (blockIdx.x == 0 && thread_in_block() == 0)
    for (int m = 0; m < group.messages; ++m) group.run[2 * m] += static_cast<Flag>(times);
}

DAGC_KERNELS_END
#endif

}  // namespace dagc
