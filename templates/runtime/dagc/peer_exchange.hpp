// Exchanges by peer: one kernel writes all messages into the memory of the GPUs that receive them.
//
// A run is numbered by an epoch, kept in device memory, so that a captured run counts as well. A message of few bytes goes
// through an inbox there, whose words have the epoch as a tag (peer_reduce.hpp): no flag, fence or barrier.
//
//   sender     waits for read >= epoch - 2, and writes the words, with the epoch, into the inbox of the turn, of two
//   receiver   takes each word as it arrives. It sets read = epoch - 1 in the sender's memory when run `epoch` begins: the stream
//              has completed the runs before.
//
// One of a rank to itself is a copy: what its stream does before and after is ordered as for a kernel. Of others, in each run:
//
//   receiver   ready = epoch in the sender's memory. Reads of the buffer are ordered before this run by the stream,
//              so the buffer is free.
//   sender     waits for ready >= epoch, copies, and then sets arrived = epoch in the receiver's memory
//   receiver   the run ends when all of its messages have arrived
//
// No deadlock: block 0, which the GPU starts first, sets "ready" and "read" before any wait, a block sends before it
// receives, and all waits are for other GPUs.
//
// Memory model: flags are stored with release and loaded with acquire semantics at system scope. Copies by the threads of a
// block are ordered before its flag by the block's barrier, a fence at system scope after it,
// and, if several blocks share a message, a counter.
#pragma once

#include <cstdint>
#include <cstring>

#include "dagc/flags.hpp"
#include "dagc/peer_reduce.hpp"
#include "dagc/target.hpp"
#include "dagc/waiting.hpp"

namespace dagc {

struct PeerSend {
  const char* from;
  char* to;        // in the receiver's memory
  Flag* ready;     // here, or `read`; null for a message to itself, which is no PeerRecv
  Flag* arrived;   // in the receiver's memory
  Flag* copied;    // here: blocks of this message that have copied their share
  Flag* inbox;     // in the receiver's memory; null for a message of many bytes
  std::int64_t bytes;
  int unit;                    // bytes of an element: 4 or 8, of an inbox
  unsigned int first, blocks;  // blocks of the kernel that copy it
};

struct PeerRecv {
  char* to;
  Flag* ready;    // in the sender's memory, or `read`
  Flag* arrived;  // here
  const Flag* inbox;  // here
  std::int64_t bytes;
  int unit;
  unsigned int first, blocks;
};

// Of one group on one rank. `epoch` and `finished` are in device memory.
struct PeerTable {
  const PeerSend* sends;
  const PeerRecv* recvs;
  Flag* epoch;
  Flag* finished;  // blocks that have done their part of this run
  unsigned int send_count, recv_count;
  bool flagged;    // whether a message has no inbox
};

// The words of a message in its inbox of a run, of two.
inline __host__ __device__ std::int64_t inbox_words(std::int64_t bytes) { return bytes / 4; }

// How many blocks of the kernel a multiprocessor runs at once; and the exchange itself.
DAGC_LAUNCHER cudaError_t blocks_of_exchange(int* blocks);
DAGC_LAUNCHER void issue_exchange(const PeerTable& table, unsigned int blocks, cudaStream_t stream);

#if DAGC_HAS_KERNELS
namespace detail {

#ifdef __CUDACC__
using Sixteen = int4;
#else  // for tests, whose ranks are streams of one process
struct alignas(16) Sixteen {
  std::uint32_t word[4];
};
#endif

__device__ inline void wait_for(const Flag* flag, Flag epoch) {
  for (unsigned int nap = 16; load_acquire(flag) < epoch; nap = nap < 256 ? 2 * nap : nap) {
    __nanosleep(nap);
    pause();
  }
}

template <class T>
__device__ void copy_share(const char* from, char* to, std::int64_t bytes, unsigned int block, unsigned int blocks) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  const std::int64_t n = bytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t step = static_cast<std::int64_t>(blocks) * threads_of_block();
  std::int64_t i = static_cast<std::int64_t>(block) * threads_of_block() + thread_in_block();
  for (; i + 3 * step < n; i += 4 * step) {
    const T a = source[i], b = source[i + step], c = source[i + 2 * step], d = source[i + 3 * step];
    target[i] = a;
    target[i + step] = b;
    target[i + 2 * step] = c;
    target[i + 3 * step] = d;
  }
  for (; i < n; i += step) target[i] = source[i];
}

// By 16 bytes or 4 where both ends allow it.
__device__ inline void copy_part(const PeerSend& send, unsigned int part) {
  const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(send.from) | reinterpret_cast<std::uintptr_t>(send.to) |
                             static_cast<std::uintptr_t>(send.bytes);
  if (all % sizeof(Sixteen) == 0) copy_share<Sixteen>(send.from, send.to, send.bytes, part, send.blocks);
  else if (all % sizeof(int) == 0) copy_share<int>(send.from, send.to, send.bytes, part, send.blocks);
  else copy_share<char>(send.from, send.to, send.bytes, part, send.blocks);
}

// Waits for the flag of the receiver while the first element arrives from memory, then sends.
template <class T>
__device__ void send_share(const PeerSend& send, Flag epoch, unsigned int block) {
  const T* source = reinterpret_cast<const T*>(send.from);
  Flag* const inbox = send.inbox + static_cast<std::int64_t>(epoch % 2) * inbox_words(send.bytes);
  const std::int64_t n = send.bytes / static_cast<std::int64_t>(sizeof(T)), step = static_cast<std::int64_t>(send.blocks) * threads_of_block();
  std::int64_t i = static_cast<std::int64_t>(block) * threads_of_block() + thread_in_block();
  T value = i < n ? source[i] : T();
  if (epoch > 2) {
    if (thread_in_block() == 0) wait_for(send.ready, epoch - 2);
    __syncthreads();
  }
  while (i < n) {
    peer::put(inbox + i * peer::words<T>, value, static_cast<unsigned int>(epoch));
    if (i += step; i < n) value = source[i];
  }
}

template <class T>
__device__ void take_share(const PeerRecv& recv, Flag epoch, unsigned int block) {
  T* target = reinterpret_cast<T*>(recv.to);
  const Flag* const inbox = recv.inbox + static_cast<std::int64_t>(epoch % 2) * inbox_words(recv.bytes);
  const std::int64_t n = recv.bytes / static_cast<std::int64_t>(sizeof(T)), step = static_cast<std::int64_t>(recv.blocks) * threads_of_block();
  for (std::int64_t i = static_cast<std::int64_t>(block) * threads_of_block() + thread_in_block(); i < n; i += step)
    target[i] = peer::take<T>(inbox + i * peer::words<T>, static_cast<unsigned int>(epoch));
}

}  // namespace detail

// What block `block` sends, which all threads of a block call together.
static __device__ void send_block(const PeerTable& table, Flag epoch, unsigned int block) {
  const unsigned int me = thread_in_block(), threads = threads_of_block();
  if (block == 0)
    for (unsigned int r = me; r < table.recv_count; r += threads)
      detail::store_release(table.recvs[r].ready, table.recvs[r].inbox != nullptr ? epoch - 1 : epoch);

  for (unsigned int s = 0; s < table.send_count; ++s) {
    const PeerSend& send = table.sends[s];
    if (block < send.first || block >= send.first + send.blocks) continue;
    const unsigned int part = block - send.first;
    if (send.ready == nullptr) {
      detail::copy_part(send, part);
      continue;
    }
    if (send.inbox != nullptr) {
      if (send.unit == 8) detail::send_share<std::uint64_t>(send, epoch, part);
      else detail::send_share<std::uint32_t>(send, epoch, part);
      continue;
    }
    if (me == 0) detail::wait_for(send.ready, epoch);
    __syncthreads();
    detail::copy_part(send, part);
    __syncthreads();
    if (me == 0) {
      __threadfence_system();
      const bool all_copied = send.blocks == 1 || atomicAdd(send.copied, Flag{1}) == send.blocks - 1;
      if (all_copied) {
        *send.copied = 0;
        __threadfence_system();
        detail::store_release(send.arrived, epoch);
      }
    }
  }
}

// What it receives, of `blocks`. The last block ends the run.
static __device__ void receive_block(const PeerTable& table, Flag epoch, unsigned int block, unsigned int blocks) {
  __shared__ bool last;
  const unsigned int me = thread_in_block(), threads = threads_of_block();
  for (unsigned int r = 0; r < table.recv_count; ++r) {
    const PeerRecv& recv = table.recvs[r];
    if (recv.inbox == nullptr || block < recv.first || block >= recv.first + recv.blocks) continue;
    if (recv.unit == 8) detail::take_share<std::uint64_t>(recv, epoch, block - recv.first);
    else detail::take_share<std::uint32_t>(recv, epoch, block - recv.first);
  }
  __syncthreads();
  if (me == 0) {
    if (table.flagged) __threadfence();
    last = atomicAdd(table.finished, Flag{1}) == blocks - 1;
  }
  __syncthreads();
  if (!last) return;
  for (unsigned int r = me; r < table.recv_count; r += threads)
    if (table.recvs[r].inbox == nullptr) detail::wait_for(table.recvs[r].arrived, epoch);
  __syncthreads();
  if (me == 0) {
    *table.finished = 0;
    *table.epoch = epoch;
  }
}

__device__ inline Flag this_run(const PeerTable& table) { return *static_cast<volatile Flag*>(table.epoch) + 1; }

static __global__ void __launch_bounds__(peer_threads) peer_exchange(PeerTable table) {
  wait_for_dependencies();
  const Flag epoch = this_run(table);
  send_block(table, epoch, blockIdx.x);
  receive_block(table, epoch, blockIdx.x, gridDim.x);
}

DAGC_LAUNCHER cudaError_t blocks_of_exchange(int* blocks) {
#if DAGC_TARGET_CUDA
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, peer_exchange, peer_threads, 0);
#else
  *blocks = 1;
  return cudaSuccess;
#endif
}

DAGC_LAUNCHER void issue_exchange(const PeerTable& table, unsigned int blocks, cudaStream_t stream) {
  WaitingKernels::also(peer_exchange);
  launch(peer_exchange, dim3(blocks), dim3(peer_threads), 0, stream, table);
}
#endif

}  // namespace dagc
