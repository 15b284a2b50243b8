// Exchanges as one GPU operation: all messages of an exchange, enqueued on a stream like a kernel. The host does not wait.
//
// A transport has such a group in group_TRANSPORT.hpp. On the host target, that of group_host.hpp replaces it: MPI on the
// stream's thread.
//
// A program names the ends of its messages once, then connects (collective); then it may run the group any number
// of times, also within a CUDA graph. Messages of two ranks match by number. A collective that is messages alone has them
// named by `broadcasts`, `gathers` or `transposes`; a reduction is named by `reduces`.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"

namespace dagc {

// One end of a message: bytes of an array of this rank, and the rank at the other end.
struct MessageEnd {
  int message;
  int peer;
  char* base;           // of the allocation
  std::int64_t offset;  // bytes
  std::int64_t bytes;

  char* data() const { return base + offset; }
};

// Common to all kinds of groups. Negative ranks, and messages of no bytes, are skipped, at both ends alike.
class GroupEnds {
 public:
  using Pairs = int (Hosts::*)(int) const;  // the rank if it is of these, else negative

  template <class T>
  void send(int message, T* base, std::int64_t start, std::int64_t count, int peer) {
    messages_ = std::max(messages_, message + 1);
    add(sends_, message, base, start, count, peer);
  }
  template <class T>
  void recv(int message, T* base, std::int64_t start, std::int64_t count, int peer) {
    add(recvs_, message, base, start, count, peer);
  }
  // Consecutive from `start`, as in the posts of message.hpp.
  template <class T>
  void sends(int message, T* base, std::int64_t start, const Peers& peers) {
    add_all(sends_, message, base, start, peers);
  }
  template <class T>
  void recvs(int message, T* base, std::int64_t start, const Peers& peers) {
    add_all(recvs_, message, base, start, peers);
  }

  // The root's elements to the other ranks.
  template <class T>
  void broadcasts(T* base, std::int64_t start, std::int64_t count, int root, int rank, int ranks) {
    if (rank != root) return recv(0, base, start, count, root);
    for (int other = 0; other < ranks; ++other)
      if (other != root) send(0, base, start, count, other);
  }
  // Every rank's elements to all ranks, which have them one after the other, by rank; with `pairs` to those that it has.
  template <class T>
  void gathers(T* to, std::int64_t to_start, T* from, std::int64_t start, std::int64_t count, int ranks, Pairs pairs = nullptr,
               const Hosts* hosts = nullptr) {
    for (int other = 0; other < ranks; ++other) {
      const int peer = pairs ? (hosts->*pairs)(other) : other;
      send(0, from, start, count, peer);
      recv(0, to, to_start + other * count, count, peer);
    }
  }
  // `count` elements for each rank, one after the other, to it.
  template <class T>
  void transposes(T* to, std::int64_t to_start, T* from, std::int64_t start, std::int64_t count, int ranks, Pairs pairs = nullptr,
                  const Hosts* hosts = nullptr) {
    for (int other = 0; other < ranks; ++other) {
      const int peer = pairs ? (hosts->*pairs)(other) : other;
      send(0, from, start + other * count, count, peer);
      recv(0, to, to_start + other * count, count, peer);
    }
  }

 protected:
  std::vector<MessageEnd> sends_, recvs_;
  int messages_ = 0;  // of all ranks

 private:
  template <class T>
  static void add(std::vector<MessageEnd>& ends, int message, T* base, std::int64_t start, std::int64_t n, int peer) {
    const std::int64_t size = static_cast<std::int64_t>(sizeof(T));
    if (peer >= 0 && n > 0) ends.push_back({message, peer, reinterpret_cast<char*>(base), start * size, n * size});
  }
  template <class T>
  static void add_all(std::vector<MessageEnd>& ends, int message, T* base, std::int64_t start, const Peers& peers) {
    for (std::int64_t i = 0; i < peers.n; ++i) {
      if (peers.rank(i) < 0) continue;
      add(ends, message, base, start, peers.counts[i], peers.peer(i));
      start += peers.counts[i];
    }
  }
};

}  // namespace dagc
