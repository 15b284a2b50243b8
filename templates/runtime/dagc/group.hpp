// Exchanges as one GPU operation: all messages of an exchange, enqueued on a stream like a kernel. The host does not wait.
//
// A transport has such a group in group_TRANSPORT.hpp. On the host target, that of group_host.hpp replaces it: MPI on the
// stream's thread.
//
// A program names the ends of its messages once, then connects (collective); then it may run the group any number
// of times, also within a CUDA graph. Messages of two ranks match by number.
#pragma once

#include <mpi.h>

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
  template <class T>
  void send(int message, T* base, std::int64_t start, std::int64_t count, int peer) {
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

 protected:
  std::vector<MessageEnd> sends_, recvs_;

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
      add(ends, message, base, start, peers.counts[i], peers.rank(i));
      start += peers.counts[i];
    }
  }
};

}  // namespace dagc
