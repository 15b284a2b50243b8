// Transport peer: one kernel writes all messages of an exchange into the memory of the GPUs that receive them.
//
// The receivers' arrays, and flags beside them, are mapped by CUDA IPC when the group connects. A run is numbered by an
// epoch, kept in device memory, so that a captured run counts as well. In each run, per message:
//
//   receiver   ready = epoch in the sender's memory. Reads of the buffer are ordered before this run by the stream,
//              so the buffer is free.
//   sender     waits for ready >= epoch, copies, and then sets arrived = epoch in the receiver's memory
//   receiver   the run ends when all of its messages have arrived
//
// No deadlock: block 0, which the GPU starts first, sets "ready" before any wait, and all other waits are for
// other GPUs. All groups that run at once, on each stream at most one, fit on the GPU together, so that a waiting one
// cannot block another; other kernels end by themselves, and those that wait for a group are launched after its blocks
// have ended. Groups of other transports (NCCL) wait on the GPU too: beside them, groups have fewer blocks than there are
// multiprocessors, of which the others find enough without any.
//
// Memory model: flags are stored with release and loaded with acquire semantics at system scope. Copies by the threads of a
// block are ordered before its flag by the block's barrier, a fence at system scope after it,
// and, if several blocks share a message, a counter.
//
// Reductions are kernels of peer_reduce.hpp; other collectives are messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dagc/peer_memory.hpp"
#include "dagc/peer_reduce.hpp"
#include "dagc/waiting.hpp"

namespace dagc {

struct PeerSend {
  const char* from;
  char* to;        // in the receiver's memory
  Flag* ready;     // here
  Flag* arrived;   // in the receiver's memory
  Flag* copied;    // here: blocks of this message that have copied their share
  std::int64_t bytes;
  unsigned int first, blocks;  // blocks of the kernel that copy it
};

struct PeerRecv {
  Flag* ready;    // in the sender's memory
  Flag* arrived;  // here
};

// Of one group on one rank. `epoch` and `finished` are in device memory.
struct PeerTable {
  const PeerSend* sends;
  const PeerRecv* recvs;
  Flag* epoch;
  Flag* finished;  // blocks that have done their part of this run
  unsigned int send_count, recv_count;
};

namespace detail {

__device__ inline void wait_for(const Flag* flag, Flag epoch) {
  for (unsigned int pause = 16; load_acquire(flag) < epoch; pause = pause < 256 ? 2 * pause : pause) __nanosleep(pause);
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

}  // namespace detail

// Block `block` of `blocks`, which all threads of a block call together.
static __device__ void exchange_block(const PeerTable& table, unsigned int block, unsigned int blocks) {
  __shared__ bool last;
  const unsigned int me = thread_in_block(), threads = threads_of_block();
  const Flag epoch = *static_cast<volatile Flag*>(table.epoch) + 1;
  if (block == 0)
    for (unsigned int r = me; r < table.recv_count; r += threads)
      detail::store_release(table.recvs[r].ready, epoch);

  for (unsigned int s = 0; s < table.send_count; ++s) {
    const PeerSend& send = table.sends[s];
    if (block < send.first || block >= send.first + send.blocks) continue;
    if (me == 0) detail::wait_for(send.ready, epoch);
    __syncthreads();
    const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(send.from) | reinterpret_cast<std::uintptr_t>(send.to) |
                               static_cast<std::uintptr_t>(send.bytes);
    const unsigned int part = block - send.first;
    if (all % sizeof(int4) == 0)
      detail::copy_share<int4>(send.from, send.to, send.bytes, part, send.blocks);
    else if (all % sizeof(int) == 0)
      detail::copy_share<int>(send.from, send.to, send.bytes, part, send.blocks);
    else
      detail::copy_share<char>(send.from, send.to, send.bytes, part, send.blocks);
    __syncthreads();
    if (me == 0) {
      __threadfence_system();
      const bool all_copied = send.blocks == 1 || atomicAdd(send.copied, 1ull) == send.blocks - 1;
      if (all_copied) {
        *send.copied = 0;
        __threadfence_system();
        detail::store_release(send.arrived, epoch);
      }
    }
  }

  __syncthreads();
  if (me == 0) {
    __threadfence();
    last = atomicAdd(table.finished, 1ull) == blocks - 1;
  }
  __syncthreads();
  if (!last) return;
  for (unsigned int r = me; r < table.recv_count; r += threads)
    detail::wait_for(table.recvs[r].arrived, epoch);
  __syncthreads();
  if (me == 0) {
    *table.finished = 0;
    *table.epoch = epoch;
  }
}

static __global__ void __launch_bounds__(peer_threads) peer_exchange(PeerTable table) {
  wait_for_dependencies();
  exchange_block(table, blockIdx.x, gridDim.x);
}

// A group within a kernel that repeats iterations (one_kernel.hpp).
struct PeerWithin {
  PeerTable table;
  PeerReduction reduction;
  unsigned int blocks;
};

DAGC_KERNELS_BEGIN

// All messages of an exchange, by all blocks of the kernel.
__device__ inline void exchange_within(const PeerWithin& group) {
  for (unsigned int k = blockIdx.x; k < group.blocks; k += gridDim.x) exchange_block(group.table, k, group.blocks);
}

template <class Op, class T>
__device__ void reduce_within(const PeerWithin& group, const T* from, T* to, std::int64_t count) {
  for (unsigned int k = blockIdx.x; count > 0 && k < group.blocks; k += gridDim.x)
    peer::reduce_block(group.reduction, from, to, count, Op(), k, group.blocks);
}

DAGC_KERNELS_END

class PeerComm {
 public:
  // Collective. All ranks must be on one host, unless the messages of all groups stay `within_hosts`. `groups`: how many
  // run at once at most; `others`: the number of groups by other transports.
  void open(MPI_Comm comm, int groups, int others, bool within_hosts = false) {
    const LocalRank local = local_rank(comm);
    int ranks = 1;
    DAGC_MPI(MPI_Comm_size(comm, &ranks));
    if (local.ranks != ranks && !within_hosts)  // on some rank of any host, and so on all of one
      fail(exit_missing, std::string("transport peer needs all ranks on one host; ") + kElse);
    take(comm, local.ranks, groups, others);
  }
  // Instead of `open`: of the ranks of a part. Collective over `all`. `groups`: of all parts together.
  void split(const PeerComm& /*parent*/, MPI_Comm all, const Communicator& part, int groups, int others,
             bool within_hosts = false) {
    const LocalRank local = local_rank(all), here = part.ranks > 0 ? local_rank(part.comm) : LocalRank{0, 0};
    together(all, [&] {
      if (here.ranks != part.ranks && !within_hosts)
        fail(exit_missing, std::string("transport peer needs all ranks of a communicator on one host; ") + kElse);
    });
    if (part.ranks > 0) take(part.comm, local.ranks, groups, others);
  }
  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  unsigned int blocks() const { return blocks_; }  // available to one group

 private:
  static constexpr const char* kElse = "choose another --transport, with -D within_host=peer for messages within a host";
  static constexpr int kOthers = 64;  // blocks of a kernel of NCCL, each of which may need a multiprocessor of its own

  // `local`: the number of ranks of this host.
  void take(MPI_Comm comm, int local, int groups, int others) {
    comm_ = comm;
    DAGC_MPI(MPI_Comm_rank(comm, &rank_));
    DAGC_MPI(MPI_Comm_size(comm, &ranks_));
    int device = 0, devices = 1, processors = 1, blocks = 1;
    DAGC_CUDA(cudaGetDevice(&device));
    DAGC_CUDA(cudaGetDeviceCount(&devices));
    DAGC_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    DAGC_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, peer_exchange, peer_threads, 0));
    const int sharing = (local + devices - 1) / devices;  // ranks of one GPU, under MPS at the same time
    const int most = others > 0 ? processors - std::min(kOthers, processors / 2) : processors * blocks;
    blocks_ = static_cast<unsigned int>(std::max(1, most / sharing / std::max(1, groups)));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  unsigned int blocks_ = 1;
};

class PeerGroup : public PeerMemory {
 public:
  PeerGroup() : PeerMemory("peer") {}
  ~PeerGroup() {
    cudaDeviceSynchronize();
    cudaFree(sends_device_);
    cudaFree(recvs_device_);
  }

  // Collective: gives the senders the addresses to write to, and the receivers those of their ready flags. What fails
  // on one rank fails on all of them.
  void connect(PeerComm& comm) {
    comm_ = comm.comm();
    if (comm_ == MPI_COMM_NULL) return;  // of a part that this rank is not in
    std::vector<Info> mine, theirs;
    together(comm_, [&] { mine = size_ > 0 ? describe_inbox(comm) : describe_all(); });
    theirs = size_ > 0 ? gather(mine.front(), comm.ranks()) : exchange(mine);
    together(comm_, [&] { size_ > 0 ? make_reduction(comm, theirs) : make_table(comm, theirs); });
    connected_ = true;
  }

  // For a kernel that runs it itself.
  PeerWithin within() const { return {table_, reduction_, blocks_}; }

  void run(cudaStream_t stream) {
    if (blocks_ == 0) return;
    WaitingKernels::also(peer_exchange);
    peer_exchange<<<blocks_, peer_threads, 0, stream>>>(table_);
    DAGC_CUDA(cudaPeekAtLastError());
  }

  // Before `connect`: the group is a reduction of so many elements.
  template <class T>
  void reduces(const T* /*from*/, std::int64_t count) {
    count_ = count;
    size_ = static_cast<std::int64_t>(sizeof(T));
  }

  template <class T>
  void allreduce(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    if (op == MPI_SUM) enqueue(from, to, count, peer::Sum(), stream);
    else if (op == MPI_PROD) enqueue(from, to, count, peer::Product(), stream);
    else if (op == MPI_MIN) enqueue(from, to, count, peer::Least(), stream);
    else enqueue(from, to, count, peer::Largest(), stream);
  }
  // The others must know that their memory was read, which the result says: an allreduce, kept by the root alone.
  template <class T>
  void reduce(const T* from, T* to, std::int64_t count, MPI_Op op, int root, cudaStream_t stream) {
    allreduce(from, reduction_.rank == root ? to : static_cast<T*>(nullptr), count, op, stream);
  }

 private:
  template <class T, class Op>
  void enqueue(const T* from, T* to, std::int64_t count, Op op, cudaStream_t stream) {
    if (count == 0) return;
    WaitingKernels::also(peer::reduce<T, Op>);
    peer::reduce<<<blocks_, peer_threads, 0, stream>>>(reduction_, from, to, count, op);
    DAGC_CUDA(cudaPeekAtLastError());
  }

  // Flags: ready and copied of each send, arrived of each receive, epoch, finished.
  std::vector<Info> describe_all() {
    const std::size_t s = sends_.size(), r = recvs_.size();
    make_flags(2 * s + r + 2);
    std::vector<Info> mine;
    for (std::size_t i = 0; i < s; ++i) mine.push_back(describe(sends_[i], i));
    for (std::size_t i = 0; i < r; ++i) mine.push_back(describe(recvs_[i], 2 * s + i));
    return mine;
  }

  // Epoch, finished, and the inbox, whose words are aligned in pairs.
  static constexpr std::size_t kInbox = 2;

  std::vector<Info> describe_inbox(const PeerComm& comm) {
    if (comm.ranks() > peer_most_ranks)
      fail(exit_missing, "transport peer reduces over at most " + std::to_string(peer_most_ranks) + " ranks, and there are " +
                             std::to_string(comm.ranks()) + "; choose another transport for the collective, or within_host=same");
    const std::int64_t words = PeerShape(count_, size_, comm.ranks()).slots * (size_ > 4 ? 2 : 1);
    make_flags(kInbox + static_cast<std::size_t>(words));
    Info info = describe_flags();
    // Two blocks of a reduction fit on a multiprocessor, and at most four of an exchange, which `blocks` counts.
    info.blocks = std::max(1u, comm.blocks() / 2);
    return {info};
  }

  // The number of blocks is the same on all ranks, so that threads of a number have the same elements.
  void make_reduction(const PeerComm& comm, const std::vector<Info>& all) {
    const PeerShape shape(count_, size_, comm.ranks());
    reduction_ = {{}, flags_, flags_ + 1, shape.piece, comm.rank(), comm.ranks(), shape.two_shots};
    blocks_ = shape.blocks;
    for (std::size_t r = 0; r < all.size(); ++r) {
      const int rank = static_cast<int>(r);
      reduction_.inbox[r] = flags_of(all[r], rank == comm.rank(), rank) + kInbox;
      blocks_ = std::min(blocks_, all[r].blocks);
    }
  }

  void make_table(const PeerComm& comm, const std::vector<Info>& theirs) {
    const std::size_t s = sends_.size(), r = recvs_.size();
    std::vector<PeerSend> sends;
    std::vector<PeerRecv> recvs;
    unsigned int first = 0;
    blocks_ = r > 0 ? 1 : 0;
    for (std::size_t i = 0; i < s; ++i) {
      const Info& other = theirs[i];
      const bool self = sends_[i].peer == comm.rank();
      // If there is no room for separate blocks, messages share them.
      const unsigned int blocks = std::min(blocks_for(sends_[i].bytes), comm.blocks());
      if (first + blocks > comm.blocks()) first = 0;
      sends.push_back({sends_[i].data(), data_of(other, self, sends_[i]), flags_ + i,
                       flag_of(other, self, sends_[i].peer), flags_ + s + i, sends_[i].bytes, first, blocks});
      first += blocks;
      blocks_ = std::max(blocks_, first);
    }
    for (std::size_t i = 0; i < r; ++i) {
      const Info& other = theirs[s + i];
      const bool self = recvs_[i].peer == comm.rank();
      recvs.push_back({flag_of(other, self, recvs_[i].peer), flags_ + 2 * s + i});
    }
    table_ = {upload(sends, &sends_device_), upload(recvs, &recvs_device_), flags_ + 2 * s + r, flags_ + 2 * s + r + 1,
              static_cast<unsigned int>(s), static_cast<unsigned int>(r)};
  }

  // One block per 16 KiB, and no more than saturate a link.
  static unsigned int blocks_for(std::int64_t bytes) {
    return static_cast<unsigned int>(std::min<std::int64_t>(32, std::max<std::int64_t>(1, bytes >> 14)));
  }

  template <class T>
  static const T* upload(const std::vector<T>& values, void** memory) {
    if (values.empty()) return nullptr;
    DAGC_CUDA(cudaMalloc(memory, values.size() * sizeof(T)));
    DAGC_CUDA(cudaMemcpy(*memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<const T*>(*memory);
  }

  void* sends_device_ = nullptr;
  void* recvs_device_ = nullptr;
  PeerTable table_{};
  PeerReduction reduction_{};
  std::int64_t count_ = 0, size_ = 0;  // of a reduction: elements, and bytes of one; 0: the group is an exchange
  unsigned int blocks_ = 0;
};

}  // namespace dagc
