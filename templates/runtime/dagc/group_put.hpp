// Transport put: kernels write messages into the memory of the receivers (put.hpp); an exchange waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "dagc/peer_memory.hpp"
#include "dagc/put.hpp"

namespace dagc {

class PutGroup;

class PutComm : public PeerMemory {
 public:
  PutComm() : PeerMemory("put") {}
  ~PutComm() { cudaFree(theirs_); }

  // Collective. All ranks must be on one host.
  void open(MPI_Comm comm, int /*groups*/, int /*others*/) {
    const int local = local_rank(comm).ranks;
    DAGC_MPI(MPI_Comm_size(comm, &ranks_));
    if (local != ranks_)  // on some rank of any host, and so on all of one
      fail(exit_missing, "transport put needs all ranks on one host; choose another --transport");
    take(comm);
  }
  // Instead of `open`: of the ranks of a part, which must be on one host. Collective over `all`.
  void split(const PutComm& /*parent*/, MPI_Comm all, const Communicator& part, int /*groups*/, int /*others*/) {
    const int here = part.ranks > 0 ? local_rank(part.comm).ranks : 0;
    ranks_ = part.ranks;
    together(all, [&] {
      if (here != ranks_)
        fail(exit_missing, "transport put needs all ranks of a communicator on one host; choose another --transport");
    });
    if (ranks_ > 0) take(part.comm);
  }
  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }

  // Collective, between runs: nothing has been sent. Kernels that were issued alone have counted runs that their receivers
  // have not.
  void restart(std::initializer_list<PutGroup*> groups);

  // Enqueued by all ranks: what they receive may be written once it has ended.
  void free(cudaStream_t stream) {
    if (ranks_ == 0) return;
    WaitingKernels::also(put_free);
    launch(put_free, dim3(1), dim3(put_threads), 0, stream, theirs_, flags_ + 1, flags_, ranks_);
    DAGC_CUDA(cudaPeekAtLastError());
  }

 private:
  // Flags: the run, and of each rank.
  void take(MPI_Comm comm) {
    comm_ = comm;
    DAGC_MPI(MPI_Comm_rank(comm, &rank_));
    Info mine{};
    together(comm, [&] {
      make_flags(1 + static_cast<std::size_t>(ranks_));
      mine = describe_flags();
    });
    const std::vector<Info> all = gather(mine, ranks_);
    together(comm, [&] {
      std::vector<Flag*> theirs;
      for (int r = 0; r < ranks_; ++r)
        theirs.push_back(flags_of(all[static_cast<std::size_t>(r)], r == rank_, r) + 1 + rank_);
      DAGC_CUDA(cudaMalloc(&theirs_, theirs.size() * sizeof(Flag*)));
      DAGC_CUDA(cudaMemcpy(theirs_, theirs.data(), theirs.size() * sizeof(Flag*), cudaMemcpyHostToDevice));
    });
    connected_ = true;
  }

  Flag** theirs_ = nullptr;
  int rank_ = 0, ranks_ = 0;
};

class PutGroup : public PeerMemory {
 public:
  PutGroup() : PeerMemory("put") {}

  // Collective: gives the senders the addresses to write to. What fails on one rank fails on all of them.
  void connect(const PutComm& comm) {
    comm_ = comm.comm();
    if (comm_ == MPI_COMM_NULL) return;  // of a part that this rank is not in
    std::vector<Info> mine;
    together(comm_, [&] { mine = describe_all(); });
    const std::vector<Info> theirs = exchange(mine);
    together(comm_, [&] {
      for (std::size_t i = 0; i < sends_.size(); ++i) {
        const bool self = sends_[i].peer == comm.rank();
        to_.push_back(data_of(theirs[i], self, sends_[i]));
        arrived_.push_back(flag_of(theirs[i], self, sends_[i].peer));
      }
    });
    connected_ = true;
  }

  // The message of this number, for a kernel that stores to `array`.
  template <class T>
  PutPart part(const T* array, int number) const {
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      if (sends_[i].message != number) continue;
      const std::int64_t size = sizeof(T), first = (sends_[i].data() - reinterpret_cast<const char*>(array)) / size;
      return {first, first + sends_[i].bytes / size, to_[i], arrived_[i], own(i), own(i) + 1};
    }
    return {};
  }

  // Waits, on the stream, for what this rank receives.
  void run(cudaStream_t stream) {
    if (recvs_.empty()) return;
    WaitingKernels::also(put_await);
    launch(put_await, dim3(1), dim3(put_threads), 0, stream, flags_ + 1, flags_, static_cast<int>(recvs_.size()));
    DAGC_CUDA(cudaPeekAtLastError());
  }

  void check() const {}  // of a library: nothing fails on a stream

 private:
  friend class PutComm;
  void zero() {
    if (flags_ != nullptr) DAGC_CUDA(cudaMemset(flags_, 0, (1 + recvs_.size() + 2 * sends_.size()) * sizeof(Flag)));
  }

  // Flags: the run; arrived of each receive; two of each send.
  std::vector<Info> describe_all() {
    make_flags(1 + recvs_.size() + 2 * sends_.size());
    std::vector<Info> mine;
    for (const MessageEnd& send : sends_) mine.push_back(describe(send, 0));
    for (std::size_t i = 0; i < recvs_.size(); ++i) mine.push_back(describe(recvs_[i], 1 + i));
    return mine;
  }
  Flag* own(std::size_t send) const { return flags_ + 1 + recvs_.size() + 2 * send; }

  std::vector<char*> to_;        // of each send, in the memory of the receiver
  std::vector<Flag*> arrived_;
};

inline void PutComm::restart(std::initializer_list<PutGroup*> groups) {
  if (comm_ == MPI_COMM_NULL) return;
  DAGC_CUDA(cudaDeviceSynchronize());
  DAGC_MPI(MPI_Barrier(comm_));
  for (PutGroup* group : groups) group->zero();
  DAGC_CUDA(cudaDeviceSynchronize());
  DAGC_MPI(MPI_Barrier(comm_));
}

}  // namespace dagc
