// MPI: start and end, device pointers, messages and collectives.
//
// Messages are posted into `Requests` and completed by `wait_all`. `Requests` keeps its memory, so that an iteration
// allocates nothing after the first. A negative peer means no message. Counts are in elements, of any size: above
// INT_MAX they need MPI 4, else the run fails with a message.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

#include "dagc/check.hpp"
#include "dagc/fault.hpp"
#include "dagc/in_flight.hpp"
#include "dagc/target.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// ---- start and end -------------------------------------------------------------------------------------------------

// MPI_Init and MPI_Finalize; errors are returned, so that DAGC_MPI can report the place. Create one first in main.
class Mpi {
 public:
  // `threads`: streams call MPI, as groups do on the host target.
  Mpi(int* argc, char*** argv, bool threads = false) {
    int level = 0;
    DAGC_MPI(MPI_Init_thread(argc, argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level));
    DAGC_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DAGC_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    DAGC_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks_));
    name_faults(rank_);
  }
  ~Mpi() {
    const tsan::Ignore ignore;
    MPI_Finalize();
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

// Index of this rank among those of its host, and their number.
struct LocalRank {
  int rank = 0, ranks = 1;
};

// The ranks of a communicator that are on the host of this one. By the host's name: MPI_Comm_split_type returns the ranks
// with shared memory, which are none for an MPI that runs without it (MPIR_CVAR_NOLOCAL). Nodes of Slurm are hosts even if
// they are on one machine, and with DAGC_RANKS_PER_HOST=N consecutive ranks of MPI_COMM_WORLD count as a host of N, to try
// there what runs on several.
class Hosts {
 public:
  // Collective.
  void find(MPI_Comm comm) {
    here_.clear();
    local_ = {0, 0};
    if (comm == MPI_COMM_NULL) return;  // of a part that this rank is not in
    int rank = 0, ranks = 1, length = 0, world = 0;
    DAGC_MPI(MPI_Comm_rank(comm, &rank));
    DAGC_MPI(MPI_Comm_size(comm, &ranks));
    DAGC_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world));
    constexpr std::size_t kSize = MPI_MAX_PROCESSOR_NAME + sizeof(int);
    char mine[kSize] = "";
    DAGC_MPI(MPI_Get_processor_name(mine, &length));
    int each = 0;
    together(comm, [&] { each = static_cast<int>(number_of("DAGC_RANKS_PER_HOST", 0, 1, true)); });
    const char* const node = std::getenv("SLURM_NODEID");
    const int part = each > 0 ? world / each : node ? std::atoi(node) : 0;
    std::memcpy(mine + MPI_MAX_PROCESSOR_NAME, &part, sizeof part);
    std::vector<char> all(static_cast<std::size_t>(ranks) * kSize);
    DAGC_MPI(MPI_Allgather(mine, kSize, MPI_CHAR, all.data(), kSize, MPI_CHAR, comm));
    for (int r = 0; r < ranks; ++r) {
      here_.push_back(std::memcmp(&all[static_cast<std::size_t>(r) * kSize], mine, kSize) == 0);
      if (!here_.back()) continue;
      ++local_.ranks;
      if (r < rank) ++local_.rank;
    }
  }

  LocalRank local() const { return local_; }
  // The lowest rank of this host.
  int first() const { return static_cast<int>(std::find(here_.begin(), here_.end(), true) - here_.begin()); }
  // The rank, if it is on this host; else negative. `between`: if it is on another one.
  int within(int peer) const { return on_this(peer) ? peer : -1; }
  int between(int peer) const { return on_this(peer) ? -1 : peer; }

 private:
  bool on_this(int peer) const {
    return peer >= 0 && static_cast<std::size_t>(peer) < here_.size() && here_[static_cast<std::size_t>(peer)];
  }

  std::vector<bool> here_;  // by rank
  LocalRank local_;
};

inline LocalRank local_rank(MPI_Comm comm = MPI_COMM_WORLD) {
  Hosts hosts;
  hosts.find(comm);
  return hosts.local();
}

// Collective: the lowest rank of this rank's host.
inline int first_of_host(MPI_Comm comm) {
  Hosts hosts;
  hosts.find(comm);
  return hosts.first();
}

// True if the MPI reports that it accepts device pointers. On the host target device memory is plain memory: true.
inline bool mpi_takes_device_pointers() {
#if DAGC_TARGET_HOST
  return true;
#elif defined(OPEN_MPI) && defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#elif defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

// ---- types ---------------------------------------------------------------------------------------------------------

template <class>
inline constexpr bool always_false = false;

// MPI's type for an element type of the language: i8 to i64, u8 to u64, f32, f64, bool.
template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  else if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  else if constexpr (std::is_same_v<T, bool>) return MPI_CXX_BOOL;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    if constexpr (sizeof(T) == 1) return MPI_INT8_T;
    else if constexpr (sizeof(T) == 2) return MPI_INT16_T;
    else if constexpr (sizeof(T) == 4) return MPI_INT32_T;
    else return MPI_INT64_T;
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (sizeof(T) == 1) return MPI_UINT8_T;
    else if constexpr (sizeof(T) == 2) return MPI_UINT16_T;
    else if constexpr (sizeof(T) == 4) return MPI_UINT32_T;
    else return MPI_UINT64_T;
  } else {
    static_assert(always_false<T>, "no MPI type for this element type");
  }
}

// The counts form of a message: `n` peers, with `counts[i]` elements for or from `ranks[i]`, one after the other. Without
// `ranks` (null), from rank 0 on: an alltoallv. `pairs`: of `hosts`, those whose elements are moved; null: all.
struct Peers {
  const std::int32_t* ranks;
  const std::int32_t* counts;
  std::int64_t n;
  int (Hosts::*pairs)(int) const = nullptr;
  const Hosts* hosts = nullptr;
  std::int64_t first = 0, stop = INT64_MAX;  // the elements of the others have their place, but are not moved

  int rank(std::int64_t i) const { return ranks ? ranks[i] : static_cast<int>(i); }
  // Negative also for another pair, whose elements have their place nevertheless.
  int peer(std::int64_t i) const { return i < first || i >= stop ? -1 : pairs ? (hosts->*pairs)(rank(i)) : rank(i); }

  // Of these peers alone, by their places.
  Peers share(std::int64_t from, std::int64_t below = INT64_MAX) const {
    Peers some = *this;
    some.first = from;
    some.stop = below;
    return some;
  }

  // Elements before those of the share, and the bytes of these.
  std::int64_t start() const { return before(first); }
  std::size_t bytes(std::size_t each) const { return static_cast<std::size_t>(before(stop) - before(first)) * each; }

  // Elements of all of them together; the least size of the buffer.
  std::int64_t total() const { return before(n); }

 private:
  std::int64_t before(std::int64_t end) const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < std::min(end, n); ++i)
      if (rank(i) >= 0) sum += counts[i];
    return sum;
  }
};

// ---- requests ------------------------------------------------------------------------------------------------------

// Messages of a rank to itself, in programs that give device pointers to MPI: copied on their own stream. An MPI
// that passes device memory to other ranks may still move its own messages with memcpy (MPICH does), and crash.
class SelfCopies {
 public:
  SelfCopies() = default;
  SelfCopies(const SelfCopies&) = delete;
  SelfCopies& operator=(const SelfCopies&) = delete;
  ~SelfCopies() {
    if (stream_) cudaStreamDestroy(stream_);
  }

  int rank = -1;  // this rank; -1: all messages go to MPI

  // The copy starts with the second of the two posts, when both the data and the destination are ready.
  void send(const void* from, std::size_t bytes, int tag) { post({from, nullptr, bytes, tag}); }
  void receive(void* to, std::size_t bytes, int tag) { post({nullptr, to, bytes, tag}); }

  void wait() { DAGC_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  struct Half {
    const void* from;
    void* to;
    std::size_t bytes;
    int tag;
  };

  void post(const Half& half) {
    if (!stream_) DAGC_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (std::size_t i = 0; i < halves_.size(); ++i) {
      const Half other = halves_[i];
      if (other.tag != half.tag || (other.from != nullptr) == (half.from != nullptr)) continue;
      halves_.erase(halves_.begin() + static_cast<std::ptrdiff_t>(i));
      const Half& sent = half.from ? half : other;
      const Half& received = half.from ? other : half;
      if (sent.bytes > received.bytes)
        fail(exit_run_failed, "a message of " + std::to_string(sent.bytes) + " bytes to itself, where " +
                                  std::to_string(received.bytes) + " are received");
      DAGC_CUDA(cudaMemcpyAsync(received.to, sent.from, sent.bytes, cudaMemcpyDefault, stream_));
      return;
    }
    halves_.push_back(half);
  }

  cudaStream_t stream_{};
  std::vector<Half> halves_;
};

// Posted messages that were not waited for yet. One for each wait op of the program.
class Requests {
 public:
  Requests() = default;
  explicit Requests(SelfCopies* self) : self_(self) {}

  // Room for one more request; `sent` is read and `received` written until the wait (either may be null).
  MPI_Request* add(const void* sent, std::size_t sent_bytes, void* received, std::size_t received_bytes) {
    if (sent) in_flight_.post_read(sent, sent_bytes);
    if (received) in_flight_.post_write(received, received_bytes);
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }

  // The local copy that replaces a message to or from `peer`, null if MPI moves it. The wait covers it too.
  SelfCopies* copies(int peer) {
    if (!self_ || peer != self_->rank) return nullptr;
    copied_ = true;
    return self_;
  }

  // Completes them all.
  void wait_all() {
    DAGC_MPI(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
    requests_.clear();
    in_flight_.wait_all();
    if (copied_) self_->wait();
    copied_ = false;
  }

  std::size_t size() const { return requests_.size(); }

  // Numbers that MPI reads until the wait.
  std::vector<std::int32_t>& numbers() { return numbers_; }

 private:
  std::vector<MPI_Request> requests_;
  tsan::InFlight in_flight_;
  std::vector<std::int32_t> numbers_;
  SelfCopies* self_ = nullptr;
  bool copied_ = false;
};

inline void wait_all(Requests& requests) { requests.wait_all(); }

// ---- messages ------------------------------------------------------------------------------------------------------

[[noreturn]] inline void count_too_large(std::int64_t count) {
  fail(exit_run_failed, "a message of " + std::to_string(count) + " elements needs an MPI of version 4 or newer");
}

// Send `count` elements to `peer`; nothing if `peer` is negative.
template <class T>
void post_send(Requests& requests, const T* data, std::int64_t count, int peer, int tag, MPI_Comm comm) {
  if (peer < 0) return;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (SelfCopies* self = requests.copies(peer)) return self->send(data, bytes, tag);
  MPI_Request* request = requests.add(data, bytes, nullptr, 0);
  if (count <= INT_MAX) {
    DAGC_MPI(MPI_Isend(data, static_cast<int>(count), mpi_type<T>(), peer, tag, comm, request));
  } else {
#if MPI_VERSION >= 4
    DAGC_MPI(MPI_Isend_c(data, count, mpi_type<T>(), peer, tag, comm, request));
#else
    count_too_large(count);
#endif
  }
}

// Receive `count` elements from `peer`; nothing if `peer` is negative.
template <class T>
void post_recv(Requests& requests, T* data, std::int64_t count, int peer, int tag, MPI_Comm comm) {
  if (peer < 0) return;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (SelfCopies* self = requests.copies(peer)) return self->receive(data, bytes, tag);
  MPI_Request* request = requests.add(nullptr, 0, data, bytes);
  if (count <= INT_MAX) {
    DAGC_MPI(MPI_Irecv(data, static_cast<int>(count), mpi_type<T>(), peer, tag, comm, request));
  } else {
#if MPI_VERSION >= 4
    DAGC_MPI(MPI_Irecv_c(data, count, mpi_type<T>(), peer, tag, comm, request));
#else
    count_too_large(count);
#endif
  }
}

// The counts form: `data` holds the parts one after the other, in the order of the peers.
template <class T>
void post_sends(Requests& requests, const T* data, const Peers& to, int tag, MPI_Comm comm) {
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < to.n; ++i) {
    post_send(requests, data + offset, to.counts[i], to.peer(i), tag, comm);
    if (to.rank(i) >= 0) offset += to.counts[i];
  }
}

template <class T>
void post_recvs(Requests& requests, T* data, const Peers& from, int tag, MPI_Comm comm) {
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < from.n; ++i) {
    post_recv(requests, data + offset, from.counts[i], from.peer(i), tag, comm);
    if (from.rank(i) >= 0) offset += from.counts[i];
  }
}

// ---- collectives ---------------------------------------------------------------------------------------------------

inline int int_count(std::int64_t count) {
  if (count > INT_MAX) fail(exit_run_failed, "a collective of " + std::to_string(count) + " elements is not supported");
  return static_cast<int>(count);
}

// dst = op over the ranks' src, `count` elements; dst may be src.
template <class T>
void post_allreduce(Requests& requests, T* dst, const T* src, std::int64_t count, MPI_Op op, MPI_Comm comm) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  const bool in_place = src == dst;
  MPI_Request* request = requests.add(in_place ? nullptr : src, bytes, dst, bytes);
  DAGC_MPI(MPI_Iallreduce(in_place ? MPI_IN_PLACE : static_cast<const void*>(src), dst, int_count(count),
                          mpi_type<T>(), op, comm, request));
}

// As `post_allreduce`, but only `root` has the result; elsewhere `dst` keeps its elements.
template <class T>
void post_reduce(Requests& requests, T* dst, const T* src, std::int64_t count, MPI_Op op, int root, int rank, MPI_Comm comm) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  const bool in_place = src == dst && rank == root;
  MPI_Request* request = requests.add(in_place ? nullptr : src, bytes, rank == root ? dst : nullptr, bytes);
  DAGC_MPI(MPI_Ireduce(in_place ? MPI_IN_PLACE : static_cast<const void*>(src), rank == root ? dst : nullptr,
                       int_count(count), mpi_type<T>(), op, root, comm, request));
}

// `count` elements of every rank, one after the other, by rank, on all of them.
template <class T>
void post_allgather(Requests& requests, T* dst, const T* src, std::int64_t count, int ranks, MPI_Comm comm) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  MPI_Request* request = requests.add(src, bytes, dst, bytes * static_cast<std::size_t>(ranks));
  DAGC_MPI(MPI_Iallgather(src, int_count(count), mpi_type<T>(), dst, int_count(count), mpi_type<T>(), comm, request));
}

// `count` elements for each rank, one after the other, and as many from each.
template <class T>
void post_alltoall(Requests& requests, T* dst, const T* src, std::int64_t count, int ranks, MPI_Comm comm) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T) * static_cast<std::size_t>(ranks);
  MPI_Request* request = requests.add(src, bytes, dst, bytes);
  DAGC_MPI(MPI_Ialltoall(src, int_count(count), mpi_type<T>(), dst, int_count(count), mpi_type<T>(), comm, request));
}

// `data` of rank `root` to all.
template <class T>
void post_bcast(Requests& requests, T* data, std::int64_t count, int root, int rank, MPI_Comm comm) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  MPI_Request* request = rank == root ? requests.add(data, bytes, nullptr, 0) : requests.add(nullptr, 0, data, bytes);
  DAGC_MPI(MPI_Ibcast(data, int_count(count), mpi_type<T>(), root, comm, request));
}

// Elements from all ranks and to all ranks, in the order of the ranks. `tag`: of the part for this rank itself, where it is
// copied beside MPI.
template <class T>
void post_alltoallv(Requests& requests, T* dst, const Peers& from, const T* src, const Peers& to, int rank, int tag,
                    MPI_Comm comm) {
  const std::size_t n = static_cast<std::size_t>(to.n), mine = static_cast<std::size_t>(rank);
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(T); };
  std::vector<std::int32_t>& numbers = requests.numbers();
  numbers.assign(4 * n, 0);
  std::int32_t* const counts[2] = {&numbers[0], &numbers[2 * n]};
  std::int32_t* const places[2] = {&numbers[n], &numbers[3 * n]};
  int end = 0;
  for (const Peers* side : {&to, &from}) {
    std::int64_t place = 0;
    for (std::size_t i = 0; i < n; ++i) {
      counts[end][i] = side->counts[i];
      places[end][i] = int_count(place);
      place += side->counts[i];
    }
    ++end;
  }
  if (SelfCopies* self = requests.copies(rank)) {
    self->send(src + places[0][mine], bytes(counts[0][mine]), tag);
    self->receive(dst + places[1][mine], bytes(counts[1][mine]), tag);
    counts[0][mine] = counts[1][mine] = 0;
  }
  MPI_Request* request = requests.add(src, bytes(to.total()), dst, bytes(from.total()));
  DAGC_MPI(MPI_Ialltoallv(src, counts[0], places[0], mpi_type<T>(), dst, counts[1], places[1], mpi_type<T>(), comm, request));
}

// The value of a condition that must be the same on all ranks; the run fails if it differs. `what`: the condition, for
// the message.
inline bool agreed(bool mine, const char* what, MPI_Comm comm) {
  int both[2] = {mine, !mine};
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, comm));
  if (both[0] && both[1]) {
    const std::string rank = mine ? "true" : "false";
    fail(exit_run_failed, "the ranks do not agree on `" + std::string(what) + "`, which is " + rank +
                              " here: it must depend on values that are the same on all ranks, such as those of an allreduce");
  }
  return both[0] != 0;
}

inline void post_barrier(Requests& requests, MPI_Comm comm) {
  MPI_Request* request = requests.add(nullptr, 0, nullptr, 0);
  DAGC_MPI(MPI_Ibarrier(comm, request));
}

}  // namespace dagc
