// Host target: a group is a task of its stream that moves the data with MPI.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "dagc/communicator.hpp"
#include "dagc/group.hpp"
#include "dagc/vote.hpp"

namespace dagc {

class HostGroup;

class HostComm {
 public:
  void open(MPI_Comm comm, int /*groups*/, int /*others*/, bool /*within_hosts*/ = false) {
    comm_ = comm;
    need_threads(comm);
  }
  // Instead of `open`: of the ranks of a part. Collective over `all`.
  void split(const HostComm& /*parent*/, MPI_Comm all, const Communicator& part, int /*groups*/, int /*others*/,
             bool /*within_hosts*/ = false) {
    comm_ = part.comm;
    need_threads(all);
  }
  MPI_Comm comm() const { return comm_; }

 private:
  static void need_threads(MPI_Comm all) {
    together(all, [] {
      int level = 0;
      DAGC_MPI(MPI_Query_thread(&level));
      if (level < MPI_THREAD_MULTIPLE)
        fail(exit_missing, "streams of the host target send by themselves, which needs MPI_THREAD_MULTIPLE, and this MPI "
                           "was started without it");
    });
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
};

// Groups on different streams run at the same time, so each has its own communicator.
class HostGroup : public GroupEnds {
 public:
  HostGroup() = default;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;
  ~HostGroup() {
    cudaDeviceSynchronize();
    if (comm_ != MPI_COMM_NULL && mpi_running()) MPI_Comm_free(&comm_);
  }

  void connect(HostComm& comm) {
    if (comm.comm() == MPI_COMM_NULL) return;  // of a part that this rank is not in
    DAGC_MPI(MPI_Comm_dup(comm.comm(), &comm_));
    DAGC_MPI(MPI_Comm_rank(comm_, &rank_));
    DAGC_MPI(MPI_Comm_size(comm_, &ranks_));
  }

  void run(cudaStream_t stream) {
    DAGC_CUDA(cudaLaunchHostFunc(stream, [](void* self) { static_cast<HostGroup*>(self)->run_here(); }, this));
  }
  // On the thread of a stream.
  void run_here() {
    guarded([&] { exchange(); });
  }

  // In a library: throws what failed on the stream's thread. After the stream has been waited for.
  void check() const {
#ifdef DAGC_LIBRARY
    if (failed_.load(std::memory_order_relaxed)) throw failure_;
#endif
  }

  template <class T>
  void allreduce(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    enqueue_collective(from, to, count, stream, [=] { post_allreduce(requests_, to, from, count, op, comm_); });
  }
  template <class T>
  void reduce(const T* from, T* to, std::int64_t count, MPI_Op op, int root, cudaStream_t stream) {
    enqueue_collective(from, to, count, stream, [=] { post_reduce(requests_, to, from, count, op, root, rank_, comm_); });
  }
  template <class T>
  void bcast(T* data, std::int64_t count, int root, cudaStream_t stream) {
    enqueue_collective(data, data, count, stream, [=] { post_bcast(requests_, data, count, root, rank_, comm_); });
  }
  template <class T>
  void allgather(const T* from, T* to, std::int64_t count, cudaStream_t stream) {
    enqueue_collective(from, to, count, stream, [=] { post_allgather(requests_, to, from, count, ranks_, comm_); });
  }

 protected:
  // `to` may be `from`; null on ranks that do not need the result. Adds in the order of the ranks, as on a GPU.
  template <class T>
  void reduce_in_order(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    enqueue_collective(from, to, count, stream, [=] { reduction(from, to, count, op); });
  }
  template <class T>
  void reduction(const T* from, T* to, std::int64_t count, MPI_Op op) {
    std::vector<T> all(static_cast<std::size_t>(count * ranks_));
    post_allgather(requests_, all.data(), from, count, ranks_, comm_);
    requests_.wait_all();
    for (std::int64_t i = 0; to != nullptr && i < count; ++i) {
      T sum = all[static_cast<std::size_t>(i)];
      for (int r = 1; r < ranks_; ++r) sum = combined(sum, all[static_cast<std::size_t>(r * count + i)], op);
      to[i] = sum;
    }
  }
  template <class Work>
  void guarded(Work work) {
#ifdef DAGC_LIBRARY
    try {
      work();
    } catch (const Failure& failure) {
      failure_ = failure;
      failed_.store(true, std::memory_order_relaxed);
    }
#else
    work();
#endif
  }

  int rank_ = 0, ranks_ = 1;

 private:
  template <class T>
  static T combined(T a, T b, MPI_Op op) {
    if (op == MPI_SUM) return static_cast<T>(a + b);
    if (op == MPI_PROD) return static_cast<T>(a * b);
    return (op == MPI_MIN ? b < a : a < b) || !(b == b) ? b : a;  // NaN, where one of both is
  }
  void exchange() {
    for (const MessageEnd& r : recvs_) post_recv(requests_, r.data(), r.bytes, r.peer, r.message, comm_);
    for (const MessageEnd& s : sends_) post_send(requests_, s.data(), s.bytes, s.peer, s.message, comm_);
    requests_.wait_all();
  }

  // One copy for each tuple of arguments, which stays as it is: the stream's thread may be running it for the run before.
  template <class Work>
  void enqueue_collective(const void* from, const void* to, std::int64_t count, cudaStream_t stream, Work work) {
    std::function<void()>& held = collectives_[{from, to, count}];
    if (!held)
      held = [=] {
        guarded([&] {
          work();
          requests_.wait_all();
        });
      };
    DAGC_CUDA(cudaLaunchHostFunc(stream, [](void* of) { (*static_cast<std::function<void()>*>(of))(); }, &held));
  }

#ifdef DAGC_LIBRARY
  Failure failure_;
  std::atomic<bool> failed_{false};
#endif
  MPI_Comm comm_ = MPI_COMM_NULL;
  Requests requests_;  // of the current run; used by the stream's thread
  std::map<std::tuple<const void*, const void*, std::int64_t>, std::function<void()>> collectives_;
};

class HostPeerGroup;

// A group within a kernel that repeats iterations.
struct PeerWithin {
  HostPeerGroup* group;
};

// Collectives without reductions are messages alone.
class HostPeerGroup : public HostGroup {
 public:
  PeerWithin within() { return {this}; }

  // Within a kernel, on the thread of its stream.
  template <class T>
  void allreduce_here(const T* from, T* to, std::int64_t count, MPI_Op op) {
    guarded([&] { reduction(from, to, count, op); });
  }
  template <class T>
  void reduces(const T* /*from*/, std::int64_t /*count*/) {}
  template <class T>
  void allreduce(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    reduce_in_order(from, to, count, op, stream);
  }
  template <class T>
  void reduce(const T* from, T* to, std::int64_t count, MPI_Op op, int root, cudaStream_t stream) {
    reduce_in_order(from, rank_ == root ? to : nullptr, count, op, stream);
  }
};

namespace peer {

struct Sum {
  static MPI_Op op() { return MPI_SUM; }
};
struct Product {
  static MPI_Op op() { return MPI_PROD; }
};
struct Least {
  static MPI_Op op() { return MPI_MIN; }
};
struct Largest {
  static MPI_Op op() { return MPI_MAX; }
};

}  // namespace peer

// By the first thread of the kernel's one block.
inline void exchange_within(const PeerWithin& within) {
  if (thread_in_block() == 0) within.group->run_here();
}
template <class Op, class T>
void reduce_within(const PeerWithin& within, const T* from, T* to, std::int64_t count) {
  if (thread_in_block() == 0) within.group->allreduce_here(from, to, count, Op::op());
}

using NcclComm = HostComm;
using PeerComm = HostComm;
using NcclGroup = HostGroup;
using PeerGroup = HostPeerGroup;

}  // namespace dagc
