// Whether the messages of all ranks match: every one that is sent is received, with the same number of bytes. Checked
// once, when the sizes are known, so that a mismatch is an error and not a hang.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// Takes the ends of the messages as GroupEnds does, and does not keep the pointers. Messages are numbered over the whole
// program. Memory: a few integers for each rank.
class Matching {
 public:
  // `names`: of the messages, by number.
  explicit Matching(std::vector<const char*> names) : names_(std::move(names)) {}

  // The peers of the ends that follow are ranks of a communicator, whose members these are; null: of the program.
  void on(const std::vector<int>* members) { members_ = members; }

  template <class T>
  void send(int message, const T*, std::int64_t, std::int64_t count, int peer) {
    add(sends_, message, count * static_cast<std::int64_t>(sizeof(T)), peer);
  }
  template <class T>
  void recv(int message, const T*, std::int64_t, std::int64_t count, int peer) {
    add(recvs_, message, count * static_cast<std::int64_t>(sizeof(T)), peer);
  }
  template <class T>
  void sends(int message, const T* base, std::int64_t start, const Peers& peers) {
    for (std::int64_t i = 0; i < peers.n; ++i) send(message, base, start, peers.counts[i], peers.rank(i));
  }
  template <class T>
  void recvs(int message, const T* base, std::int64_t start, const Peers& peers) {
    for (std::int64_t i = 0; i < peers.n; ++i) recv(message, base, start, peers.counts[i], peers.rank(i));
  }

  // Collective. Fails on all ranks if messages of any two of them do not match.
  void check(MPI_Comm comm) const {
    int rank = 0, ranks = 1;
    DAGC_MPI(MPI_Comm_rank(comm, &rank));
    DAGC_MPI(MPI_Comm_size(comm, &ranks));
    const std::vector<std::vector<End>> coming = exchange(comm, ranks);
    together(comm, [&] {
      for (int peer = 0; peer < ranks; ++peer) {
        std::vector<End> expected;
        for (const End& end : recvs_)
          if (end.peer == peer) expected.push_back(end);
        compare(coming[static_cast<std::size_t>(peer)], expected, rank, peer);
      }
    });
  }

 private:
  struct End {
    std::int64_t message, bytes, peer;
  };

  void add(std::vector<End>& ends, int message, std::int64_t bytes, int peer) const {
    if (peer < 0) return;
    ends.push_back({message, bytes, members_ != nullptr ? (*members_)[static_cast<std::size_t>(peer)] : peer});
  }

  // What each rank sends to this one, in its order.
  std::vector<std::vector<End>> exchange(MPI_Comm comm, int ranks) const {
    const std::size_t n = static_cast<std::size_t>(ranks);
    std::vector<std::vector<End>> going(n), coming(n);
    for (const End& end : sends_) going[static_cast<std::size_t>(end.peer)].push_back(end);
    std::vector<int> send_counts(n), send_starts(n), recv_counts(n), recv_starts(n);
    std::vector<End> out;
    for (std::size_t r = 0; r < n; ++r) {
      send_starts[r] = static_cast<int>(3 * out.size());
      send_counts[r] = static_cast<int>(3 * going[r].size());
      out.insert(out.end(), going[r].begin(), going[r].end());
    }
    DAGC_MPI(MPI_Alltoall(send_counts.data(), 1, MPI_INT, recv_counts.data(), 1, MPI_INT, comm));
    int total = 0;
    for (std::size_t r = 0; r < n; ++r) {
      recv_starts[r] = total;
      total += recv_counts[r];
    }
    std::vector<End> in(static_cast<std::size_t>(total) / 3);
    DAGC_MPI(MPI_Alltoallv(out.data(), send_counts.data(), send_starts.data(), MPI_INT64_T, in.data(), recv_counts.data(),
                           recv_starts.data(), MPI_INT64_T, comm));
    for (std::size_t r = 0; r < n; ++r) {
      const auto first = in.begin() + recv_starts[r] / 3;
      coming[r].assign(first, first + recv_counts[r] / 3);
    }
    return coming;
  }

  // Messages of one number between two ranks match in order.
  void compare(const std::vector<End>& sent, const std::vector<End>& expected, int rank, int peer) const {
    const std::string from = "rank " + std::to_string(peer), to = "rank " + std::to_string(rank);
    std::vector<bool> used(sent.size());
    for (const End& want : expected) {
      std::size_t i = 0;
      while (i < sent.size() && (used[i] || sent[i].message != want.message)) ++i;
      if (i == sent.size()) fail(exit_bad_input, name(want) + ": " + to + " expects it from " + from + ", which does not send it");
      if (sent[i].bytes != want.bytes)
        fail(exit_bad_input, name(want) + ": " + from + " sends " + std::to_string(sent[i].bytes) + " bytes to " + to +
                                 ", which expects " + std::to_string(want.bytes));
      used[i] = true;
    }
    for (std::size_t i = 0; i < sent.size(); ++i)
      if (!used[i]) fail(exit_bad_input, name(sent[i]) + ": " + from + " sends it to " + to + ", which does not expect it");
  }

  std::string name(const End& end) const { return std::string("message ") + names_[static_cast<std::size_t>(end.message)]; }

  const std::vector<int>* members_ = nullptr;
  std::vector<const char*> names_;
  std::vector<End> sends_, recvs_;
};

}  // namespace dagc
