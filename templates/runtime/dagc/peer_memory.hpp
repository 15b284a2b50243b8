// Memory that ranks of one host share: arrays that messages are written to and flags, mapped by CUDA IPC.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dagc/allocation.hpp"
#include "dagc/communicator.hpp"
#include "dagc/flags.hpp"
#include "dagc/group.hpp"
#include "dagc/target.hpp"
#include "dagc/vote.hpp"
#if DAGC_TARGET_HOST
#include "dagc/host_ipc.hpp"
#endif

namespace dagc {

class PeerMemory : public GroupEnds {
 public:
  explicit PeerMemory(const char* transport) : transport_(transport) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

 protected:
  // The barrier ensures that no rank frees memory that others have mapped.
  ~PeerMemory() {
    if (flags_ == nullptr) return;
    cudaDeviceSynchronize();
    for (const auto& opened : opened_) cudaIpcCloseMemHandle(opened.second);
    if (connected_ && mpi_running()) MPI_Barrier(comm_);
    cudaFree(flags_);
  }

  // Data that one end sends to the other, and a rank of a reduction to all.
  struct Info {
    cudaIpcMemHandle_t memory, flags;
    std::uint64_t base, flags_base;  // addresses there, for a rank that sends to itself
    std::int64_t offset, bytes, flag, inbox;
    int unit;              // of elements in the inbox
    std::uint64_t digest;  // of the data, where both ends must begin with the same
    unsigned int blocks;
  };

  // Zero. They have their own allocation, since IPC shares whole allocations.
  void make_flags(std::size_t number) {
    const std::size_t bytes = std::max<std::size_t>(2u << 20, number * sizeof(Flag));
    DAGC_CUDA(cudaMalloc(&flags_, bytes));
    DAGC_CUDA(cudaMemset(flags_, 0, bytes));
    DAGC_CUDA(cudaDeviceSynchronize());
  }

  Info describe_flags() const {
    Info info{};
    share(&info.flags, flags_);
    info.flags_base = reinterpret_cast<std::uint64_t>(flags_);
    return info;
  }

  // IPC shares whole allocations, and the array of an application may be a part of one.
  Info describe(const MessageEnd& end, std::size_t flag) const {
    Info info = describe_flags();
    const char* const base = allocation_of(end.base).base;
    share(&info.memory, const_cast<char*>(base));
    info.base = reinterpret_cast<std::uint64_t>(base);
    info.offset = end.data() - base;
    info.bytes = end.bytes;
    info.flag = static_cast<std::int64_t>(flag);
    return info;
  }

  // Collective: what all ranks have.
  std::vector<Info> gather(const Info& mine, int ranks) const {
    std::vector<Info> all(static_cast<std::size_t>(ranks));
    DAGC_MPI(MPI_Allgather(&mine, sizeof(Info), MPI_BYTE, all.data(), sizeof(Info), MPI_BYTE, comm_));
    return all;
  }

  // Collective: what the other ends of the messages sent, in the order of `mine`: of the sends, then of the receives.
  std::vector<Info> exchange(const std::vector<Info>& mine) const {
    std::vector<Info> theirs(mine.size());
    std::vector<MPI_Request> requests(2 * mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const bool sending = i < sends_.size();
      const MessageEnd& end = sending ? sends_[i] : recvs_[i - sends_.size()];
      // Data from senders has even tags, data from receivers odd ones.
      const int out = 2 * end.message + (sending ? 0 : 1), in = 2 * end.message + (sending ? 1 : 0);
      DAGC_MPI(MPI_Irecv(&theirs[i], sizeof(Info), MPI_BYTE, end.peer, in, comm_, &requests[2 * i]));
      DAGC_MPI(MPI_Isend(&mine[i], sizeof(Info), MPI_BYTE, end.peer, out, comm_, &requests[2 * i + 1]));
    }
    DAGC_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    return theirs;
  }

  // Where the receiver of a message has it, and the flag that belongs to the other end of one.
  char* data_of(const Info& other, bool self, const MessageEnd& send) {
    if (send.bytes != other.bytes)
      fail(exit_run_failed, "a message of " + std::to_string(send.bytes) + " bytes to rank " +
                                std::to_string(send.peer) + ", which expects " + std::to_string(other.bytes));
    return map(other.memory, other.base, self, send.peer) + other.offset;
  }
  Flag* flag_of(const Info& other, bool self, int peer) { return flags_of(other, self, peer) + other.flag; }
  Flag* flags_of(const Info& other, bool self, int peer) {
    return reinterpret_cast<Flag*>(map(other.flags, other.flags_base, self, peer));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  Flag* flags_ = nullptr;
  bool connected_ = false;  // on all ranks

 private:
  void share(cudaIpcMemHandle_t* handle, void* memory) const {
    if (const cudaError_t status = cudaIpcGetMemHandle(handle, memory); status != cudaSuccess)
      fail(exit_bad_input, "transport " + transport_ + " cannot share the memory of a message with other processes (" +
                               cudaGetErrorString(status) + "); allocate the array by cudaMalloc, not from a pool or as "
                               "managed or virtual memory, or choose another --transport");
  }

  // Another rank's memory in this process; each handle is opened once.
  char* map(const cudaIpcMemHandle_t& handle, std::uint64_t base, bool self, int peer) {
    if (self) return reinterpret_cast<char*>(base);
    for (const auto& opened : opened_)
      if (std::memcmp(&opened.first, &handle, sizeof handle) == 0) return static_cast<char*>(opened.second);
    void* memory = nullptr;
    const cudaError_t status = cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess)
      fail(exit_missing, "transport " + transport_ + " cannot reach the memory of rank " + std::to_string(peer) + "'s GPU (" +
                             cudaGetErrorString(status) + "); choose another --transport");
    opened_.emplace_back(handle, memory);
    return static_cast<char*>(memory);
  }

  std::string transport_;
  std::vector<std::pair<cudaIpcMemHandle_t, void*>> opened_;
};

}  // namespace dagc
