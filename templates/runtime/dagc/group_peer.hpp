// Transport peer: one kernel writes all messages of an exchange into the memory of the GPUs that receive them (peer_exchange.hpp).
//
// The receivers' arrays, and flags and inboxes beside them, are mapped by CUDA IPC when the group connects.
//
// No deadlock: waits within a kernel are for other GPUs. All groups that run at once, on each stream at most one, fit on the GPU
// together, so that a waiting one cannot block another; other kernels end by themselves, and those that wait for a group
// are launched after its blocks have ended. Groups of other transports (NCCL) wait on the GPU too: beside them, groups have fewer blocks
// than there are multiprocessors, of which the others find enough without any.
//
// Reductions are kernels of peer_reduce.hpp; other collectives are messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dagc/peer_exchange.hpp"
#include "dagc/peer_memory.hpp"
#include "dagc/waiting.hpp"

namespace dagc {

// A group within a kernel that repeats iterations (one_kernel.hpp).
struct PeerWithin {
  PeerTable table;
  PeerReduction reduction;
  unsigned int blocks;
};

#if DAGC_HAS_KERNELS
DAGC_KERNELS_BEGIN

// All messages of an exchange, by all blocks of the kernel. A block sends all its parts before it waits for one.
__device__ inline void exchange_within(const PeerWithin& group) {
  if (blockIdx.x >= group.blocks) return;
  const Flag epoch = this_run(group.table);
  for (unsigned int k = blockIdx.x; k < group.blocks; k += gridDim.x) send_block(group.table, epoch, k);
  for (unsigned int k = blockIdx.x; k < group.blocks; k += gridDim.x) receive_block(group.table, epoch, k, group.blocks);
}

template <class Op, class T>
__device__ void reduce_within(const PeerWithin& group, const T* from, T* to, std::int64_t count) {
  if (group.reduction.ranks == 1 && to == from) return;
  for (unsigned int k = blockIdx.x; count > 0 && k < group.blocks; k += gridDim.x)
    peer::reduce_block(group.reduction, from, to, count, Op(), k, group.blocks);
}

DAGC_KERNELS_END
#endif

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
    DAGC_CUDA(blocks_of_exchange(&blocks));
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
    issue_exchange(table_, blocks_, stream);
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
#if DAGC_HAS_KERNELS
    if (op == MPI_SUM) enqueue(from, to, count, peer::Sum(), stream);
    else if (op == MPI_PROD) enqueue(from, to, count, peer::Product(), stream);
    else if (op == MPI_MIN) enqueue(from, to, count, peer::Least(), stream);
    else enqueue(from, to, count, peer::Largest(), stream);
#else
    static_assert(sizeof(T) == 0, "reductions are not launched apart from their kernels");
#endif
  }
  // The others must know that their memory was read, which the result says: an allreduce, kept by the root alone.
  template <class T>
  void reduce(const T* from, T* to, std::int64_t count, MPI_Op op, int root, cudaStream_t stream) {
    allreduce(from, reduction_.rank == root ? to : static_cast<T*>(nullptr), count, op, stream);
  }

 private:
#if DAGC_HAS_KERNELS
  template <class T, class Op>
  void enqueue(const T* from, T* to, std::int64_t count, Op op, cudaStream_t stream) {
    if (count == 0 || (reduction_.ranks == 1 && to == from)) return;  // the sum is what the one rank has
    WaitingKernels::also(peer::reduce<T, Op>);
    launch(peer::reduce<T, Op>, dim3(blocks_), dim3(peer_threads), 0, stream, reduction_, from, to, count, op);
    DAGC_CUDA(cudaPeekAtLastError());
  }
#endif

  // Flags: ready and copied of each send, arrived of each receive, epoch, finished; then the inboxes, whose words are aligned in
  // pairs.
  std::vector<Info> describe_all() {
    const std::size_t s = sends_.size(), r = recvs_.size();
    std::size_t next = (2 * s + r + 3) / 2 * 2;
    for (const MessageEnd& recv : recvs_) {
      inboxes_.push_back(static_cast<std::int64_t>(next));
      next += unit_of(recv) > 0 ? 2 * static_cast<std::size_t>(inbox_words(recv.bytes) + 1) / 2 * 2 : 0;
    }
    make_flags(next);
    std::vector<Info> mine;
    for (std::size_t i = 0; i < s; ++i) mine.push_back(describe(sends_[i], i));
    for (std::size_t i = 0; i < r; ++i) mine.push_back(describe(recvs_[i], 2 * s + i));
    for (std::size_t i = 0; i < s + r; ++i) mine[i].unit = unit_of(i < s ? sends_[i] : recvs_[i - s]);
    for (std::size_t i = 0; i < r; ++i) mine[s + i].inbox = inboxes_[i];
    return mine;
  }

  // Bytes of the elements of an inbox; 0: the message has none. Both ends have the smaller of what they can.
  static int unit_of(const MessageEnd& end) {
    if (end.bytes > kTagged) return 0;
    const std::uint64_t all = reinterpret_cast<std::uintptr_t>(end.data()) | static_cast<std::uint64_t>(end.bytes);
    return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 0;
  }
  static constexpr std::int64_t kTagged = 512 << 10;  // words with tags take twice the bandwidth

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
    bool flagged = false;
    blocks_ = r > 0 ? 1 : 0;
    // If there is no room for separate blocks, messages share them.
    const auto place = [&](std::int64_t bytes, bool tagged) {
      const unsigned int blocks = std::min(blocks_for(bytes, tagged), comm.blocks());
      if (first + blocks > comm.blocks()) first = 0;
      const unsigned int begin = first;
      first += blocks;
      blocks_ = std::max(blocks_, first);
      flagged = flagged || !tagged;
      return std::pair{begin, blocks};
    };
    for (std::size_t i = 0; i < s; ++i) {
      const Info& other = theirs[i];
      const MessageEnd& send = sends_[i];
      const bool self = send.peer == comm.rank();
      const int unit = std::min(unit_of(send), other.unit);
      const auto [begin, blocks] = place(send.bytes, unit > 0 || self);
      if (self) {
        sends.push_back({send.data(), data_of(other, true, send), nullptr, nullptr, nullptr, nullptr, send.bytes, 0, begin, blocks});
        continue;
      }
      Flag* const inbox = unit > 0 ? flags_of(other, false, send.peer) + other.inbox : nullptr;
      sends.push_back({send.data(), data_of(other, false, send), flags_ + i, flag_of(other, false, send.peer), flags_ + s + i, inbox,
                       send.bytes, unit, begin, blocks});
    }
    first = 0;  // a block that sends also receives
    for (std::size_t i = 0; i < r; ++i) {
      const Info& other = theirs[s + i];
      const MessageEnd& recv = recvs_[i];
      if (recv.peer == comm.rank()) continue;
      const int unit = std::min(unit_of(recv), other.unit);
      const auto [begin, blocks] = unit > 0 ? place(recv.bytes, true) : std::pair{0u, 0u};
      recvs.push_back({recv.data(), flag_of(other, false, recv.peer), flags_ + 2 * s + i, unit > 0 ? flags_ + inboxes_[i] : nullptr, recv.bytes,
                       unit, begin, blocks});
      flagged = flagged || unit == 0;
    }
    table_ = {upload(sends, &sends_device_), upload(recvs, &recvs_device_), flags_ + 2 * s + r, flags_ + 2 * s + r + 1,
              static_cast<unsigned int>(s), static_cast<unsigned int>(recvs.size()), flagged};
  }

  // One block per 16 KiB, or 4 with tags, and no more than saturate a link.
  static unsigned int blocks_for(std::int64_t bytes, bool tagged) {
    return static_cast<unsigned int>(std::min<std::int64_t>(32, std::max<std::int64_t>(1, bytes >> (tagged ? 12 : 14))));
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
  std::vector<std::int64_t> inboxes_;  // of each receive, among the flags
  PeerTable table_{};
  PeerReduction reduction_{};
  std::int64_t count_ = 0, size_ = 0;  // of a reduction: elements, and bytes of one; 0: the group is an exchange
  unsigned int blocks_ = 0;
};

}  // namespace dagc
