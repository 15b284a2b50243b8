// Transport put: kernels write messages into the memory of the receivers (put.hpp); an exchange waits for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "dagc/digest.hpp"
#include "dagc/peer_memory.hpp"
#include "dagc/put.hpp"

namespace dagc {

class PutGroup;

class PutComm : public PeerMemory {
 public:
  PutComm() : PeerMemory("put") {}
  ~PutComm() { cudaFree(theirs_); }

  // Collective. All ranks must be on one host, unless the messages of all groups stay `within_hosts`.
  void open(MPI_Comm comm, int /*groups*/, int /*others*/, bool within_hosts = false) {
    int ranks = 1;
    hosts_.find(comm);
    DAGC_MPI(MPI_Comm_size(comm, &ranks));
    if (hosts_.local().ranks != ranks && !within_hosts)  // on some rank of any host, and so on all of one
      fail(exit_missing, std::string("transport put needs all ranks on one host; ") + kElse);
    share(hosts_.local().ranks);
    take(comm, ranks);
  }
  // Instead of `open`: of the ranks of a part. Collective over `all`.
  void split(const PutComm& /*parent*/, MPI_Comm all, const Communicator& part, int /*groups*/, int /*others*/,
             bool within_hosts = false) {
    if (part.ranks > 0) hosts_.find(part.comm);
    share(local_rank(all).ranks);
    together(all, [&] {
      if (part.ranks > 0 && hosts_.local().ranks != part.ranks && !within_hosts)
        fail(exit_missing, std::string("transport put needs all ranks of a communicator on one host; ") + kElse);
    });
    if (part.ranks > 0) take(part.comm, part.ranks);
  }
  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  bool shared() const { return shared_; }
  PutFree within() const { return {theirs_, flags_ + 1, flags_, hosts_.local().ranks}; }

  // Collective, between runs: nothing has been sent. Kernels that were issued alone have counted runs that their receivers
  // have not.
  void restart(std::initializer_list<PutGroup*> groups);

  // Enqueued by all ranks of a host: what they receive may be written once it has ended.
  void free(cudaStream_t stream) {
    if (comm_ == MPI_COMM_NULL) return;
    issue_free(within(), stream);
    DAGC_CUDA(cudaPeekAtLastError());
  }

 private:
  // `local`: the number of ranks of this host.
  void share([[maybe_unused]] int local) {
#if DAGC_TARGET_CUDA
    int devices = 1;
    DAGC_CUDA(cudaGetDeviceCount(&devices));
    shared_ = local > devices;
#endif
  }
  static constexpr const char* kElse = "choose another --transport, with -D within_host=put for messages within a host";

  // Flags: the run, and of each rank of this host, in order.
  void take(MPI_Comm comm, int ranks) {
    comm_ = comm;
    DAGC_MPI(MPI_Comm_rank(comm, &rank_));
    Info mine{};
    together(comm, [&] {
      make_flags(1 + static_cast<std::size_t>(hosts_.local().ranks));
      mine = describe_flags();
    });
    const std::vector<Info> all = gather(mine, ranks);
    together(comm, [&] {
      std::vector<Flag*> theirs;
      for (int r = 0; r < ranks; ++r)
        if (hosts_.within(r) == r) theirs.push_back(flags_of(all[static_cast<std::size_t>(r)], r == rank_, r) + 1 + hosts_.local().rank);
      DAGC_CUDA(cudaMalloc(&theirs_, theirs.size() * sizeof(Flag*)));
      DAGC_CUDA(cudaMemcpy(theirs_, theirs.data(), theirs.size() * sizeof(Flag*), cudaMemcpyHostToDevice));
    });
    connected_ = true;
  }

  Flag** theirs_ = nullptr;
  int rank_ = 0;
  Hosts hosts_;          // of the ranks
  bool shared_ = false;  // whether ranks share a GPU
};

class PutGroup : public PeerMemory {
 public:
  PutGroup() : PeerMemory("put") {}
  ~PutGroup() { cudaFree(awaited_), cudaFree(sent_); }

  // Before `connect`: kernels may leave elements of these messages of `exchange` as they were, and then send none.
  void updates(const char* exchange, std::initializer_list<int> messages) {
    exchange_ = exchange;
    updated_ = messages;
  }

  // Collective: gives the senders the addresses to write to. What fails on one rank fails on all of them.
  void connect(const PutComm& comm) {
    comm_ = comm.comm();
    shared_ = comm.shared();
    if (comm_ == MPI_COMM_NULL) return;  // of a part that this rank is not in
    std::vector<Info> mine;
    together(comm_, [&] { mine = describe_all(); });
    const std::vector<Info> theirs = exchange(mine);
    together(comm_, [&] {
      for (std::size_t i = 0; i < recvs_.size(); ++i)
        if (mine[sends_.size() + i].digest != theirs[sends_.size() + i].digest)
          fail(exit_bad_input, "`" + exchange_ + "`: what is received from rank " + std::to_string(recvs_[i].peer) +
                                   " begins with other values than there, and the kernel that writes it may leave elements as they "
                                   "were; give both the same in the set-up, or choose -D transport=peer");
      for (std::size_t i = 0; i < sends_.size(); ++i) {
        const bool self = sends_[i].peer == comm.rank();
        to_.push_back(data_of(theirs[i], self, sends_[i]));
        arrived_.push_back(flag_of(theirs[i], self, sends_[i].peer));
      }
      upload();
    });
    connected_ = true;
  }

  // The message of this number, for a kernel that stores to `array`.
  template <class T>
  PutPart part(const T* array, int number) const {
    if (flags_ == nullptr) return {};
    PutPart out{0, 0, nullptr, nullptr, own(number), own(number) + 1};
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      if (sends_[i].message != number) continue;
      const std::int64_t size = sizeof(T), first = (sends_[i].data() - reinterpret_cast<const char*>(array)) / size;
      out.first = first, out.last = first + sends_[i].bytes / size, out.to = to_[i], out.arrived = arrived_[i];
    }
    return out;
  }

  // That which this rank receives as this number, for a kernel that waits for it.
  PutArrival arrival(int number) const {
    if (shared_)
      fail(exit_missing, "put_wait=reader needs a GPU for each rank: blocks that wait could keep those of other ranks from it; "
                         "choose -D put_wait=op");
    return awaited(number);
  }

  // For a kernel that runs it itself.
  PutWithin within() const {
    return {sent_, awaited_, flags_, static_cast<int>(sends_.size()), static_cast<int>(recvs_.size()), messages_};
  }

  // While one exists, kernels wait for nothing: an op is issued alone, and as often as each rank likes.
  class OpAlone {
   public:
    OpAlone() { now = true; }
    OpAlone(const OpAlone&) = delete;
    OpAlone& operator=(const OpAlone&) = delete;
    ~OpAlone() { now = false; }

   private:
    friend class PutGroup;
    static inline bool now = false;
  };

  // Waits, on the stream, for what this rank receives.
  void run(cudaStream_t stream) {
    if (recvs_.empty()) return;
    issue_await(awaited_, static_cast<int>(recvs_.size()), stream);
    DAGC_CUDA(cudaPeekAtLastError());
  }

  void check() const {}  // of a library: nothing fails on a stream

 private:
  friend class PutComm;
  void zero() {
    if (flags_ != nullptr) DAGC_CUDA(cudaMemset(flags_, 0, received(recvs_.size()) * sizeof(Flag)));
  }

  // Flags: two of each message, and `arrived` of each receive.
  std::vector<Info> describe_all() {
    make_flags(received(recvs_.size()));
    std::vector<Info> mine;
    for (const MessageEnd& send : sends_) mine.push_back(describe(send, 0));
    for (std::size_t i = 0; i < recvs_.size(); ++i) mine.push_back(describe(recvs_[i], received(i)));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i].digest = digest_of(i < sends_.size() ? sends_[i] : recvs_[i - sends_.size()]);
    return mine;
  }
  // 0 where the ends need not be alike. By the host, since data may begin at any byte.
  std::uint64_t digest_of(const MessageEnd& end) const {
    if (std::find(updated_.begin(), updated_.end(), end.message) == updated_.end()) return 0;
    std::vector<char> bytes(static_cast<std::size_t>(end.bytes));
    DAGC_CUDA(cudaMemcpy(bytes.data(), end.data(), bytes.size(), cudaMemcpyDefault));
    return digest(bytes.data(), 0, bytes.size(), false);
  }
  Flag* own(int message) const { return flags_ + 2 * message; }
  std::size_t received(std::size_t i) const { return 2 * static_cast<std::size_t>(messages_) + i; }

  PutArrival awaited(int number) const {
    for (std::size_t i = 0; i < recvs_.size() && flags_ != nullptr && !OpAlone::now; ++i)
      if (recvs_[i].message == number) return {flags_ + received(i), own(number)};
    return {};
  }

  // For `put_await`, and within kernels.
  void upload() {
    std::vector<PutArrival> all;
    for (const MessageEnd& recv : recvs_) all.push_back(awaited(recv.message));
    copy(all, &awaited_);
    copy(arrived_, &sent_);
  }
  template <class T>
  static void copy(const std::vector<T>& from, T** to) {
    if (from.empty()) return;
    DAGC_CUDA(cudaMalloc(to, from.size() * sizeof(T)));
    DAGC_CUDA(cudaMemcpy(*to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }

  PutArrival* awaited_ = nullptr;
  Flag** sent_ = nullptr;
  bool shared_ = false;
  std::string exchange_;
  std::vector<int> updated_;
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
