// Reductions and exchanges by peer: ranks are streams of one process, which write into one another's memory.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "dagc/peer_exchange.hpp"
#include "dagc/peer_reduce.hpp"

#include "check.hpp"

namespace {

template <class T, class Op>
struct Ranks {
  Ranks(int ranks, std::int64_t count, std::int64_t piece, bool two_shots, unsigned int blocks)
      : ranks_(ranks), count_(count), blocks_(blocks) {
    const std::int64_t slots = two_shots ? 2 * piece + ranks : 2 * ranks * piece;
    for (int r = 0; r < ranks; ++r) {
      memory_.emplace_back(static_cast<std::size_t>(2 + slots * dagc::peer::words<T>));
      from_.emplace_back(static_cast<std::size_t>(count));
      to_.emplace_back(static_cast<std::size_t>(count));
      streams_.emplace_back();
      cudaStreamCreate(&streams_.back());
    }
    for (int r = 0; r < ranks; ++r) {
      dagc::PeerReduction one{{}, &memory_[r][0], &memory_[r][1], piece, r, ranks, two_shots};
      for (int other = 0; other < ranks; ++other) one.inbox[other] = &memory_[other][2];
      all_.push_back(one);
    }
  }
  ~Ranks() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  // Several runs before anybody waits, so that a rank may be a run ahead. `root`: who has the results; -1: all.
  void run(int runs, bool in_place, int root) {
    std::vector<std::vector<T>> start = from_;
    for (int r = 0; r < ranks_; ++r)
      for (std::int64_t i = 0; i < count_; ++i) start[r][i] = from_[r][i] = value(r, i);
    for (int n = 0; n < runs; ++n)
      for (int k = 0; k < ranks_; ++k) {
        const int r = (k + n) % ranks_;
        T* const to = root >= 0 && r != root ? nullptr : in_place ? from_[r].data() : to_[r].data();
        dagc::launch(dagc::peer::reduce<T, Op>, dim3(blocks_), dim3(kThreads), 0, streams_[r], all_[r], from_[r].data(), to, count_, Op());
      }
    for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
    for (int n = 0; n < (in_place ? runs : 1); ++n) {
      std::vector<T> sums = start[0];
      for (std::int64_t i = 0; i < count_; ++i)
        for (int r = 1; r < ranks_; ++r) sums[i] = Op()(sums[i], start[r][i]);
      for (int r = 0; r < ranks_; ++r)
        if (root < 0 || r == root) start[r] = sums;
    }
    for (int r = 0; r < ranks_; ++r)
      if (root < 0 || r == root) {
        const std::vector<T>& result = in_place ? from_[r] : to_[r];
        EXPECT(std::memcmp(result.data(), start[r].data(), static_cast<std::size_t>(count_) * sizeof(T)) == 0);
      }
  }

 private:
  static constexpr unsigned int kThreads = 32;
  static T value(int r, std::int64_t i) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(1) / static_cast<T>(3 + r + i % 7);
    else return static_cast<T>(1 + (r + 3 * i) % 5);
  }

  int ranks_;
  std::int64_t count_;
  unsigned int blocks_;
  std::vector<std::vector<dagc::Flag>> memory_;  // epoch, finished, inbox
  std::vector<std::vector<T>> from_, to_;
  std::vector<dagc::PeerReduction> all_;
  std::vector<cudaStream_t> streams_;
};

template <class T, class Op = dagc::peer::Sum>
void all_shapes(int ranks) {
  for (bool in_place : {false, true}) {
    Ranks<T, Op>(ranks, 1, 1, false, 1).run(4, in_place, -1);
    Ranks<T, Op>(ranks, 100, 100, false, 2).run(3, in_place, -1);
    Ranks<T, Op>(ranks, 100, 40, false, 1).run(3, in_place, -1);
    Ranks<T, Op>(ranks, 100, 40, true, 1).run(3, in_place, -1);   // in pieces, the last one smaller
    Ranks<T, Op>(ranks, 100, 128, true, 2).run(3, in_place, -1);  // fewer than fit
    Ranks<T, Op>(ranks, 100, 33, true, 2).run(2, in_place, ranks - 1);
    Ranks<T, Op>(ranks, 3, 3, false, 1).run(3, in_place, 0);
  }
}

// A ring of ranks that exchange with both neighbours: message 0 to the next one, 1 to the one before; and a message of each to
// itself. `unit`: 0: of flags.
void exchange(int ranks, std::int64_t words, int unit, unsigned int blocks) {
  const std::int64_t bytes = 4 * words, inbox = 2 * dagc::inbox_words(bytes) + 2;
  struct Rank {
    std::vector<std::uint32_t> from, to, own;
    std::vector<dagc::Flag> inbox[2], flags = std::vector<dagc::Flag>(8);  // ready, copied, arrived of each, epoch, finished
    dagc::PeerSend sends[3];
    dagc::PeerRecv recvs[2];
    cudaStream_t stream;
  };
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  for (Rank& rank : all) {
    rank.from.resize(static_cast<std::size_t>(2 * words)), rank.to = rank.own = rank.from;
    rank.sends[2] = {reinterpret_cast<char*>(rank.from.data()), reinterpret_cast<char*>(rank.own.data()), nullptr, nullptr, nullptr, nullptr,
                     2 * bytes, 0, 0, blocks};
    for (auto& one : rank.inbox) one.resize(static_cast<std::size_t>(inbox));
    cudaStreamCreate(&rank.stream);
  }
  for (int r = 0; r < ranks; ++r)
    for (int m = 0; m < 2; ++m) {
      Rank &me = all[r], &after = all[(r + (m == 0 ? 1 : ranks - 1)) % ranks], &before = all[(r + (m == 0 ? ranks - 1 : 1)) % ranks];
      const auto data = [&](std::vector<std::uint32_t>& of) { return reinterpret_cast<char*>(&of[m * words]); };
      me.sends[m] = {data(me.from), data(after.to), &me.flags[m], &after.flags[4 + m], &me.flags[2 + m],
                     unit > 0 ? after.inbox[m].data() : nullptr, bytes, unit, 0, blocks};
      me.recvs[m] = {data(me.to), &before.flags[m], &me.flags[4 + m], unit > 0 ? me.inbox[m].data() : nullptr, bytes, unit, 0, blocks};
    }
  for (std::uint32_t run = 1; run <= 5; ++run) {
    // The first two runs without a wait of the host, so that a rank may be one ahead.
    for (int r = 0; r < ranks; ++r) {
      Rank& me = all[(r + run) % ranks];
      const dagc::PeerTable table{me.sends, me.recvs, &me.flags[6], &me.flags[7], 3, 2, unit == 0};
      for (std::size_t i = 0; run != 2 && i < me.from.size(); ++i) me.from[i] = static_cast<std::uint32_t>(1000 * ((r + run) % ranks) + 7 * i) + run;
      dagc::launch(dagc::peer_exchange, dim3(blocks), dim3(32), 0, me.stream, table);
    }
    if (run == 1) continue;
    for (Rank& rank : all) cudaStreamSynchronize(rank.stream);
    for (const Rank& rank : all) EXPECT(rank.own == rank.from);
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < 2 * words; ++i) EXPECT(all[r].to[i] == all[(r + (i < words ? ranks - 1 : 1)) % ranks].from[i]);
  }
  for (Rank& rank : all) cudaStreamDestroy(rank.stream);
}

void exchanges() {
  for (int ranks : {1, 2, 3})
    for (unsigned int blocks : {1, 2})
      for (std::int64_t words : {2, 74, 600})
        for (int unit : {0, 4, 8}) exchange(ranks, words, unit, blocks);
}

// A rank sends two runs ahead of the receiver, and no third one before that has begun its second.
void ahead() {
  constexpr std::int64_t words = 40, bytes = 4 * words;
  std::vector<std::uint32_t> from[3], to[3];
  std::vector<dagc::Flag> inbox(2 * words), here(8), there(8);  // `read` of the receiver, epoch and finished at 6 and 7
  dagc::PeerSend sends[3];
  dagc::PeerRecv recvs[3];
  cudaStream_t sender, receiver;
  cudaStreamCreate(&sender), cudaStreamCreate(&receiver);
  for (std::uint32_t run = 0; run < 3; ++run) {
    from[run].assign(words, 100 + run), to[run].assign(words, 0);
    sends[run] = {reinterpret_cast<char*>(from[run].data()), nullptr, &here[0], nullptr, nullptr, inbox.data(), bytes, 8, 0, 1};
    recvs[run] = {reinterpret_cast<char*>(to[run].data()), &here[0], nullptr, inbox.data(), bytes, 8, 0, 1};
    const dagc::PeerTable table{&sends[run], nullptr, &here[6], &here[7], 1, 0, false};
    dagc::launch(dagc::peer_exchange, dim3(1), dim3(32), 0, sender, table);
  }
  const auto receive = [&](int run) {
    const dagc::PeerTable table{nullptr, &recvs[run], &there[6], &there[7], 0, 1, false};
    dagc::launch(dagc::peer_exchange, dim3(1), dim3(32), 0, receiver, table);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (std::int64_t i = 0; i < 2 * words; i += 2) EXPECT(__atomic_load_n(&inbox[i], __ATOMIC_RELAXED) >> 32 == (i < words ? 2 : 1));
  for (int run = 0; run < 3; ++run) receive(run);
  cudaStreamSynchronize(sender), cudaStreamSynchronize(receiver);
  for (std::uint32_t run = 0; run < 3; ++run)
    for (std::uint32_t value : to[run]) EXPECT(value == 100 + run);
  cudaStreamDestroy(sender), cudaStreamDestroy(receiver);
}

// Two ranks add in one shot, and every thread has an element of each piece.
void shapes() {
  for (std::int64_t count : {1, 100, 1 << 17, (1 << 17) + 1, 200'000, 1 << 21, 123'456'789})
    for (std::int64_t size : {1, 4, 8})
      for (int ranks : {1, 2, 3, 8}) {
        const dagc::PeerShape shape(count, size, ranks);
        const std::int64_t pieces = (count + shape.piece - 1) / shape.piece;
        EXPECT(shape.two_shots == (ranks > 2 && count * size * (ranks - 1) > 1 << 20));
        EXPECT(shape.blocks >= 1 && shape.piece <= 1 << 17);
        EXPECT(pieces == 1 || count / pieces >= static_cast<std::int64_t>(shape.blocks) * dagc::peer_threads);
      }
}

const Case kCases[] = {
    {"shapes", shapes},
    {"exchanges", exchanges},
    {"ahead", ahead},
    {"one", [] { all_shapes<double>(1); }},
    {"two", [] { all_shapes<double>(2); }},
    {"three", [] { all_shapes<double>(3); }},
    {"eight", [] { all_shapes<double>(8); }},
    {"floats", [] { all_shapes<float>(4); }},
    {"products", [] { all_shapes<std::int8_t, dagc::peer::Product>(3); }},
    {"halves", [] { all_shapes<std::uint16_t>(2); }},
    {"least", [] { all_shapes<std::int32_t, dagc::peer::Least>(3); }},
    {"largest", [] { all_shapes<std::uint64_t, dagc::peer::Largest>(2); }},
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
