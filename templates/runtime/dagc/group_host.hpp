// Host target: a group is a task of its stream that moves the data with MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dagc/group.hpp"

namespace dagc {

class HostGroup;

class HostComm {
 public:
  void open(MPI_Comm comm) {
    int level = 0;
    DAGC_MPI(MPI_Query_thread(&level));
    if (level < MPI_THREAD_MULTIPLE)
      fail(exit_missing, "streams of the host target send by themselves, and this MPI was started without MPI_THREAD_MULTIPLE");
    comm_ = comm;
  }
  MPI_Comm comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// Groups on different streams run at the same time, so each has a communicator of its own.
class HostGroup : public GroupEnds {
 public:
  HostGroup() = default;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;
  ~HostGroup() {
    cudaDeviceSynchronize();
    if (comm_ != MPI_COMM_NULL && mpi_running()) MPI_Comm_free(&comm_);
  }

  void connect(HostComm& comm) { DAGC_MPI(MPI_Comm_dup(comm.comm(), &comm_)); }

  void run(cudaStream_t stream) {
    DAGC_CUDA(cudaLaunchHostFunc(stream, [](void* self) { static_cast<HostGroup*>(self)->exchange(); }, this));
  }

  template <class T>
  void allreduce(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    collective_ = [=] { DAGC_MPI(MPI_Allreduce(from, to, static_cast<int>(count), mpi_type<T>(), op, comm_)); };
    enqueue_collective(stream);
  }
  template <class T>
  void bcast(T* data, std::int64_t count, int root, cudaStream_t stream) {
    collective_ = [=] { DAGC_MPI(MPI_Bcast(data, static_cast<int>(count), mpi_type<T>(), root, comm_)); };
    enqueue_collective(stream);
  }

 private:
  void exchange() {
    requests_.clear();
    for (const MessageEnd& r : recvs_) {
      requests_.emplace_back();
      DAGC_MPI(MPI_Irecv(r.data(), static_cast<int>(r.bytes), MPI_BYTE, r.peer, r.message, comm_, &requests_.back()));
    }
    for (const MessageEnd& s : sends_) {
      requests_.emplace_back();
      DAGC_MPI(MPI_Isend(s.data(), static_cast<int>(s.bytes), MPI_BYTE, s.peer, s.message, comm_, &requests_.back()));
    }
    DAGC_MPI(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
  }

  // The arguments are the same in every run, so one copy of them is enough.
  void enqueue_collective(cudaStream_t stream) {
    DAGC_CUDA(cudaLaunchHostFunc(stream, [](void* self) { static_cast<HostGroup*>(self)->collective_(); }, this));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::function<void()> collective_;
};

using NcclComm = HostComm;
using PeerComm = HostComm;
using NcclGroup = HostGroup;
using PeerGroup = HostGroup;

}  // namespace dagc
