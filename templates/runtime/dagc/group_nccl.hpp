// Transport nccl: the messages of an exchange as one NCCL group.
//
// Ungrouped, a send and the receive of the same rank could wait for each other; in a group NCCL starts them all together.
// Groups of one communicator run in the order in which they are issued, also on different streams. Every rank issues
// the same traversal, so this order is the same everywhere, and no two ranks can wait for each other.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dagc/communicator.hpp"
#include "dagc/connecting.hpp"
#include "dagc/group.hpp"
#include "dagc/vote.hpp"

#define DAGC_NCCL(call)                                                                       \
  do {                                                                                        \
    const ncclResult_t dagc_result = (call);                                                  \
    if (dagc_result != ncclSuccess)                                                           \
      ::dagc::call_failed(__FILE__, __LINE__, #call, ::dagc::nccl_reason(dagc_result));       \
  } while (0)

namespace dagc {

inline std::string nccl_reason(ncclResult_t result) {
  const char* more = ncclGetLastError(nullptr);
  return std::string(ncclGetErrorString(result)) + (more && *more ? std::string("; ") + more : "");
}

class NcclComm {
 public:
  using Shared = std::shared_ptr<ncclComm>;

  // Before `open`: an existing communicator, of an application or of an earlier program. Null: `open` creates one,
  // which takes 0.2 to 0.6 s.
  void use(Shared comm) { comm_ = std::move(comm); }
  // The application destroys it.
  static Shared borrowed(ncclComm_t comm) { return Shared(comm, [](ncclComm_t) {}); }
  const Shared& shared() const { return comm_; }

  // Collective. Ranks that share a GPU are refused: NCCL does not support it.
  void open(MPI_Comm mpi, int /*groups*/, int /*others*/) {
    if (given(mpi)) return;
    int rank = 0, ranks = 1, device = 0;
    DAGC_MPI(MPI_Comm_rank(mpi, &rank));
    DAGC_MPI(MPI_Comm_size(mpi, &ranks));
    DAGC_CUDA(cudaGetDevice(&device));
    int devices = 0;
    DAGC_CUDA(cudaGetDeviceCount(&devices));
    const LocalRank local = local_rank(mpi);
    together(mpi, [&] {
      if (local.ranks > devices)
        fail(exit_missing, "transport nccl needs a GPU for each rank, and " + std::to_string(local.ranks) +
                               " ranks of this host share " + std::to_string(devices) + "; choose another --transport");
    });
    ncclUniqueId id;
    if (rank == 0) DAGC_NCCL(ncclGetUniqueId(&id));
    DAGC_MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, mpi));
    ncclComm_t made = nullptr;
    {
      const Connecting limit(mpi, "NCCL", seconds_to_connect());
      DAGC_NCCL(ncclCommInitRank(&made, ranks, id, rank));
    }
    comm_ = Shared(made, [](ncclComm_t comm) { ncclCommDestroy(comm); });
  }
  ncclComm_t get() const { return comm_.get(); }

  // Instead of `open`, collective over the ranks of `parent`: of the ranks of a part (NCCL 2.18 and newer).
  void split(const NcclComm& parent, MPI_Comm /*all*/, const Communicator& part, int /*groups*/, int /*others*/) {
    ncclComm_t made = nullptr;
    DAGC_NCCL(ncclCommSplit(parent.get(), part.colour < 0 ? NCCL_SPLIT_NOCOLOR : part.colour, part.key, &made, nullptr));
    if (made != nullptr) comm_ = Shared(made, [](ncclComm_t comm) { ncclCommDestroy(comm); });
  }

 private:
  // Whether a communicator exists: on all ranks or on none. Fails if its ranks are not those of MPI.
  bool given(MPI_Comm mpi) const {
    int here = comm_ != nullptr, least = 0;
    DAGC_MPI(MPI_Allreduce(&here, &least, 1, MPI_INT, MPI_MIN, mpi));
    together(mpi, [&] {
      if (here == 0) return;
      if (least == 0) fail(exit_bad_input, "nccl_comm is given, but not on every rank");
      int rank = 0, ranks = 1, device = 0, its_rank = 0, its_ranks = 0, its_device = 0;
      DAGC_MPI(MPI_Comm_rank(mpi, &rank));
      DAGC_MPI(MPI_Comm_size(mpi, &ranks));
      DAGC_CUDA(cudaGetDevice(&device));
      DAGC_NCCL(ncclCommCount(get(), &its_ranks));
      DAGC_NCCL(ncclCommUserRank(get(), &its_rank));
      DAGC_NCCL(ncclCommCuDevice(get(), &its_device));
      differ("number of ranks", its_ranks, ranks);
      differ("rank", its_rank, rank);
      differ("GPU", its_device, device);
    });
    return least != 0;
  }
  static void differ(const char* what, int its, int ours) {
    if (its == ours) return;
    fail(exit_bad_input, std::string("nccl_comm: its ") + what + " is " + std::to_string(its) + ", and that of the program " + std::to_string(ours));
  }

  Shared comm_;
};

template <class T>
ncclDataType_t nccl_type();
template <>
inline ncclDataType_t nccl_type<float>() { return ncclFloat32; }
template <>
inline ncclDataType_t nccl_type<double>() { return ncclFloat64; }
template <>
inline ncclDataType_t nccl_type<std::int8_t>() { return ncclInt8; }
template <>
inline ncclDataType_t nccl_type<std::uint8_t>() { return ncclUint8; }
template <>
inline ncclDataType_t nccl_type<std::int32_t>() { return ncclInt32; }
template <>
inline ncclDataType_t nccl_type<std::uint32_t>() { return ncclUint32; }
template <>
inline ncclDataType_t nccl_type<std::int64_t>() { return ncclInt64; }
template <>
inline ncclDataType_t nccl_type<std::uint64_t>() { return ncclUint64; }

inline ncclRedOp_t nccl_op(MPI_Op op) {
  if (op == MPI_SUM) return ncclSum;
  if (op == MPI_PROD) return ncclProd;
  return op == MPI_MIN ? ncclMin : ncclMax;
}

class NcclGroup : public GroupEnds {
 public:
  // Collective. NCCL connects two ranks at their first message. This is done here, with a byte for each message, and
  // not while the program is captured or timed.
  void connect(NcclComm& comm) {
    comm_ = &comm;
    // Each byte begins a word of its own: NCCL reads and writes whole words around it.
    constexpr std::int64_t kWord = 16;
    char* scratch = nullptr;
    DAGC_CUDA(cudaMalloc(&scratch, (sends_.size() + recvs_.size() + 1) * std::size_t{kWord}));
    std::vector<MessageEnd> sends = sends_, recvs = recvs_;
    std::int64_t used = 0;
    for (std::vector<MessageEnd>* ends : {&sends, &recvs})
      for (MessageEnd& end : *ends) {
        end = {end.message, end.peer, scratch, used, 1};
        used += kWord;
      }
    exchange(sends, recvs, nullptr);
    DAGC_CUDA(cudaDeviceSynchronize());
    DAGC_CUDA(cudaFree(scratch));
  }

  void run(cudaStream_t stream) { exchange(sends_, recvs_, stream); }

  template <class T>
  void allreduce(const T* from, T* to, std::int64_t count, MPI_Op op, cudaStream_t stream) {
    const std::size_t n = static_cast<std::size_t>(count);
    DAGC_NCCL(ncclAllReduce(from, to, n, nccl_type<T>(), nccl_op(op), comm_->get(), stream));
  }
  template <class T>
  void reduce(const T* from, T* to, std::int64_t count, MPI_Op op, int root, cudaStream_t stream) {
    const std::size_t n = static_cast<std::size_t>(count);
    DAGC_NCCL(ncclReduce(from, to, n, nccl_type<T>(), nccl_op(op), root, comm_->get(), stream));
  }
  template <class T>
  void allgather(const T* from, T* to, std::int64_t count, cudaStream_t stream) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    DAGC_NCCL(ncclAllGather(from, to, bytes, ncclUint8, comm_->get(), stream));
  }
  template <class T>
  void bcast(T* data, std::int64_t count, int root, cudaStream_t stream) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    DAGC_NCCL(ncclBroadcast(data, data, bytes, ncclUint8, root, comm_->get(), stream));
  }

 private:
  void exchange(const std::vector<MessageEnd>& sends, const std::vector<MessageEnd>& recvs, cudaStream_t stream) {
    DAGC_NCCL(ncclGroupStart());
    for (const MessageEnd& s : sends)
      DAGC_NCCL(ncclSend(s.data(), static_cast<std::size_t>(s.bytes), ncclUint8, s.peer, comm_->get(), stream));
    for (const MessageEnd& r : recvs)
      DAGC_NCCL(ncclRecv(r.data(), static_cast<std::size_t>(r.bytes), ncclUint8, r.peer, comm_->get(), stream));
    DAGC_NCCL(ncclGroupEnd());
  }

  NcclComm* comm_ = nullptr;
};

}  // namespace dagc
