// Messages that a kernel writes into the memory of the receiver: ranks are streams of one process, in a ring, and each sends
// a part to both neighbours. A kernel waits for them, or the one that reads them. ThreadSanitizer must be silent on `sound_`, and
// speak on each mutant.
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "dagc/put.hpp"

#include "check.hpp"

namespace {

enum Mutant { none, no_fence, early_signal, no_await, no_free, by_reader, late_wait, joined, not_counted };

constexpr unsigned int kBlocks = 5;  // that pack; `joined` has others, as a launch of several calls

constexpr std::int64_t kHalf = 150;  // elements for a neighbour

template <Mutant mutant>
__global__ void pack(std::int32_t* sent_here, const dagc::Put<2> put, const std::int32_t* from, std::int32_t run) {
  const auto sent = dagc::put_array<0, 2>(sent_here, put);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if constexpr (mutant == joined || mutant == not_counted) {
    constexpr unsigned int counted = mutant == joined ? kBlocks : kBlocks - 1;
    const dagc::PutEnd end(put, blockIdx.x < counted, counted);
    dagc::Vector<std::int32_t, 4> four;  // some of both parts, and where they begin no vector at the receiver
    for (int lane = 0; i % 4 == 0 && i < 2 * kHalf && lane < 4; ++lane) four[lane] = from[i + lane] + run;
    if (i % 4 == 0 && i < 2 * kHalf && dagc::aligned<4>(sent, from)) dagc::store<4>(&sent[i], four);
  } else if constexpr (mutant != no_fence && mutant != early_signal) {
    const dagc::PutEnd end(put);
    if (i >= 2 * kHalf) return;
    sent[i] = from[i] + run;
  } else {
    if constexpr (mutant == early_signal) const dagc::PutEnd end(put);
    if (i < 2 * kHalf) sent[i] = from[i] + run;
    __syncthreads();
    if (mutant == early_signal || threadIdx.x != 0 || atomicAdd(put.part[0].ended, dagc::Flag{1}) != gridDim.x - 1) return;
    *put.part[0].ended = 0;
    const dagc::Flag now = ++*put.part[0].run;
    for (const auto& part : put.part) __atomic_store_n(part.arrived, now, __ATOMIC_RELAXED);
  }
}

// A rank that is late lets others be a run ahead.
__global__ void use(std::int64_t* sum, const std::int32_t* received, std::int64_t n, bool late) {
  if (late) usleep(2000);
  for (std::int64_t i = 0; i < n; ++i) *sum += received[i] * (i + 1);
}

// Waits itself, as all of its threads do: the last thread of the block is not the one that polls.
template <Mutant mutant>
__global__ void wait_and_use(std::int64_t* sum, const std::int32_t* received, std::int64_t n, const dagc::PutWait<2> awaited) {
  std::int64_t mine = mutant == late_wait ? received[0] : 0;
  dagc::put_wait(awaited, mutant == joined ? blockIdx.x == 0 ? 0 : 3U >> (blockIdx.x - 1) : 3U);
  if (mutant == joined && blockIdx.x > 0) return;  // the first block waits for all
  if (mutant == by_reader || mutant == joined || mutant == not_counted) mine = received[0];
  if (threadIdx.x != blockDim.x - 1) return;
  for (std::int64_t i = 1; i < n; ++i) mine += received[i] * (i + 1);
  *sum += mine;
}

struct Rank {
  std::vector<std::int32_t> from, sent, received;
  std::vector<dagc::Flag> free, arrived, own;  // `own`: runs of the free; of each message the runs of the kernel, blocks that have ended
  std::vector<dagc::Flag*> theirs;
  std::int64_t sum = 0;
  cudaStream_t stream{};
  dagc::Put<2> put{};
  dagc::PutWait<2> awaited{};
};

dagc::Flag* own(Rank& rank, int message) { return &rank.own[static_cast<std::size_t>(1 + 2 * message)]; }

template <Mutant mutant>
void ring(int n, int runs) {
  std::vector<Rank> ranks(static_cast<std::size_t>(n));
  const auto at = [&](int r) -> Rank& { return ranks[static_cast<std::size_t>((r + n) % n)]; };
  for (Rank& rank : ranks) {
    rank.from.resize(2 * kHalf);
    rank.sent.resize(2 * kHalf);
    rank.received.assign(2 * kHalf, -1);
    rank.free.resize(static_cast<std::size_t>(n));
    rank.arrived.resize(2);
    rank.own.resize(5);
    GOOD(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
  }
  for (int r = 0; r < n; ++r) {
    Rank& rank = at(r);
    for (std::int64_t i = 0; i < 2 * kHalf; ++i) rank.from[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(1000 * r + i);
    for (Rank& other : ranks) rank.theirs.push_back(&other.free[static_cast<std::size_t>(r)]);
    for (int side = 0; side < 2; ++side) {  // to the left neighbour's right side, and the other way round
      Rank& other = at(side == 0 ? r - 1 : r + 1);
      rank.put.part[side] = {side * kHalf, (side + 1) * kHalf, &other.received[static_cast<std::size_t>((1 - side) * kHalf)],
                             &other.arrived[static_cast<std::size_t>(1 - side)], own(rank, side), own(rank, side) + 1};
      rank.awaited.part[1 - side] = {&rank.arrived[static_cast<std::size_t>(1 - side)], own(rank, side)};
    }
  }
  const dim3 one(1), waiting(dagc::put_threads);
  for (int run = 0; run < runs; ++run)
    for (Rank& rank : ranks) {
      if constexpr (mutant != no_free)
        dagc::launch(dagc::put_free, one, waiting, 0, rank.stream, dagc::PutFree{rank.theirs.data(), rank.free.data(), &rank.own[0], n});
      dagc::launch(pack<mutant>, dim3(mutant == joined ? kBlocks + 3 : kBlocks), dim3(64), 0, rank.stream, rank.sent.data(), rank.put, rank.from.data(), run);
      if constexpr (mutant == by_reader || mutant == late_wait || mutant == joined || mutant == not_counted) {
        dagc::launch(wait_and_use<mutant>, dim3(mutant == joined ? 3 : 1), dim3(3), 0, rank.stream, &rank.sum, rank.received.data(), std::int64_t{2 * kHalf}, rank.awaited);
        continue;
      }
      if constexpr (mutant != no_await) dagc::launch(dagc::put_await, one, waiting, 0, rank.stream, rank.awaited.part, 2);
      dagc::launch(use, one, one, 0, rank.stream, &rank.sum, rank.received.data(), std::int64_t{2 * kHalf}, &rank == &ranks.back());
    }
  for (Rank& rank : ranks) GOOD(cudaStreamSynchronize(rank.stream));
  for (int r = 0; (mutant == none || mutant == by_reader || mutant == joined) && r < n; ++r) {
    std::int64_t want = 0;
    for (int run = 0; run < runs; ++run)
      for (std::int64_t i = 0; i < 2 * kHalf; ++i) {
        const int sender = i < kHalf ? (r + n - 1) % n : (r + 1) % n;
        const std::int64_t there = i < kHalf ? i + kHalf : i - kHalf;  // in what the sender has
        want += (1000 * sender + there + run) * (i + 1);
      }
    EXPECT(at(r).sum == want);
  }
  for (Rank& rank : ranks) GOOD(cudaStreamDestroy(rank.stream));
}

const Case kCases[] = {
    {"sound_two", [] { ring<none>(2, 20); }},
    {"sound_four", [] { ring<none>(4, 20); }},
    {"sound_alone", [] { ring<none>(1, 5); }},
    {"sound_by_reader", [] { ring<by_reader>(3, 20); }},
    {"sound_joined", [] { ring<joined>(2, 20); }},
    {"broken_no_fence", [] { ring<no_fence>(2, 20); }},
    {"broken_early_signal", [] { ring<early_signal>(2, 20); }},
    {"broken_no_await", [] { ring<no_await>(2, 20); }},
    {"broken_late_wait", [] { ring<late_wait>(2, 20); }},
    {"broken_no_free", [] { ring<no_free>(2, 20); }},
    {"broken_not_counted", [] { ring<not_counted>(2, 20); }},
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
