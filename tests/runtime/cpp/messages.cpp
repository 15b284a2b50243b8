// Every form of message and collective, for every element type, on any number of ranks; ends with 1 where data is wrong.
// messages large [ELEMENTS]: a message of more than INT_MAX elements of one byte to itself.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "dagc/message.hpp"
#include "dagc/rank_order.hpp"

namespace {

int rank, ranks;
const MPI_Comm comm = MPI_COMM_WORLD;

void expect(bool good, const std::string& what) {
  if (!good) dagc::fail(1, what);
}

template <class T>
T value(int from, int to, std::int64_t i) {
  return static_cast<T>((from * 31 + to * 7 + i) % 2 ? 1 : 0);  // fits every type, bool included
}

// Of a grid of ranks, `each` on a host: how many pairs of neighbours are on two hosts, once they are ordered.
void order_grid(std::array<int, 3> grid, int each, bool periodic, std::int64_t expected) {
  const int n = grid[0] * grid[1] * grid[2];
  dagc::Bonds bonds(static_cast<std::size_t>(n));
  std::vector<int> hosts;
  for (int r = 0; r < n; ++r) {
    hosts.push_back(r / each);
    const std::array<int, 3> at{r % grid[0], r / grid[0] % grid[1], r / (grid[0] * grid[1])};
    for (std::size_t d = 0; d < 3; ++d) {
      std::array<int, 3> next = at;
      if (++next[d] == grid[d]) {
        if (!periodic) continue;
        next[d] = 0;
      }
      bonds.add(r, next[0] + grid[0] * (next[1] + grid[1] * next[2]), 8);
    }
  }
  const dagc::RankOrder found = dagc::near_order(bonds, hosts);
  expect(found.between == expected * 8 && found.before > found.between, "the order of the ranks of a grid");
  std::vector<int> all = found.rank;
  std::sort(all.begin(), all.end());
  for (int r = 0; r < n; ++r) expect(all[static_cast<std::size_t>(r)] == r, "each rank runs once");
}

void order_ranks() {
  order_grid({16, 16, 1}, 16, false, 96);      // squares of 4 x 4: 96
  order_grid({16, 16, 16}, 8, true, 6144);     // cubes of 2 x 2 x 2: 6144, of 8 704 as they are numbered
  order_grid({12, 6, 4}, 6, true, 532);        // blocks of 1 x 3 x 2: 528
}

// Two messages to the right and one to the left, posted in an order that only tags can tell apart.
template <class T>
void scalar_peers(dagc::Requests& sends, dagc::Requests& receives, std::int64_t n) {
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  const std::size_t size = static_cast<std::size_t>(n);
  std::vector<char> storage(6 * (size + 1) * sizeof(T));
  T* out[3];
  T* in[3];
  for (int m = 0; m < 3; ++m) {
    out[m] = reinterpret_cast<T*>(storage.data()) + static_cast<std::size_t>(m) * (size + 1);
    in[m] = out[m] + 3 * (size + 1);
    for (std::int64_t i = 0; i < n; ++i) out[m][i] = value<T>(rank, m, i);
  }
  dagc::post_recv(receives, in[0], n, left, 0, comm);
  dagc::post_recv(receives, in[1], n, left, 1, comm);
  dagc::post_recv(receives, in[2], n, right, 2, comm);
  dagc::post_recv(receives, in[2], n, -1, 3, comm);  // no message
  dagc::post_send(sends, out[2], n, left, 2, comm);
  dagc::post_send(sends, out[1], n, right, 1, comm);
  dagc::post_send(sends, out[0], n, right, 0, comm);
  dagc::post_send(sends, out[0], n, -1, 3, comm);
  expect(sends.size() == 3 && receives.size() == 3, "a negative peer made a request");
  dagc::wait_all(receives);
  dagc::wait_all(sends);
  expect(sends.size() == 0 && receives.size() == 0, "requests are left");
  for (int m = 0; m < 3; ++m)
    for (std::int64_t i = 0; i < n; ++i)
      expect(in[m][i] == value<T>(m == 2 ? right : left, m, i), "message " + std::to_string(m));
}

// Rank r sends r + 2 p + 1 elements to each p; a negative rank in the middle of the list is skipped.
void counts_form() {
  std::vector<std::int32_t> peers, to_counts, from_counts;
  for (int p = 0; p < ranks; ++p) {
    peers.push_back(p);
    to_counts.push_back(rank + 2 * p + 1);
    from_counts.push_back(p + 2 * rank + 1);
    peers.push_back(-1);
    to_counts.push_back(1000000);
    from_counts.push_back(1000000);
  }
  const dagc::Peers to{peers.data(), to_counts.data(), static_cast<std::int64_t>(peers.size())};
  const dagc::Peers from{peers.data(), from_counts.data(), static_cast<std::int64_t>(peers.size())};
  expect(to.total() == ranks * (rank + ranks), "total of the sends");
  std::vector<double> out, in(static_cast<std::size_t>(from.total()), -1);
  for (int p = 0; p < ranks; ++p)
    for (int i = 0; i < rank + 2 * p + 1; ++i) out.push_back(1000 * rank + 10 * p + 0.25 * i);
  dagc::Requests requests;
  dagc::post_recvs(requests, in.data(), from, 9, comm);
  dagc::post_sends(requests, out.data(), to, 9, comm);
  dagc::wait_all(requests);
  std::size_t at = 0;
  for (int p = 0; p < ranks; ++p)
    for (int i = 0; i < p + 2 * rank + 1; ++i) expect(in[at++] == 1000 * p + 10 * rank + 0.25 * i, "counts form");
}

void collectives() {
  dagc::Requests requests;
  std::vector<double> mine = {1.0 * rank, 2.0}, sum(2), data(3, rank == ranks - 1 ? 5.0 : 0.0);
  dagc::post_allreduce(requests, sum.data(), mine.data(), 2, MPI_SUM, comm);
  dagc::wait_all(requests);
  expect(sum[0] == ranks * (ranks - 1) / 2.0 && sum[1] == 2.0 * ranks, "allreduce");
  dagc::post_allreduce(requests, mine.data(), mine.data(), 2, MPI_MAX, comm);
  dagc::wait_all(requests);
  expect(mine[0] == ranks - 1 && mine[1] == 2, "allreduce in place");
  dagc::post_bcast(requests, data.data(), 3, ranks - 1, rank, comm);
  dagc::wait_all(requests);
  expect(data[0] == 5 && data[2] == 5, "bcast");
  std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), 1), places(static_cast<std::size_t>(ranks));
  std::iota(places.begin(), places.end(), 0);
  std::vector<std::int64_t> out(places.begin(), places.end()), in(out.size());
  for (auto& o : out) o += 100 * rank;
  const dagc::Peers everyone{nullptr, counts.data(), ranks};
  dagc::post_alltoallv(requests, in.data(), everyone, out.data(), everyone, rank, 0, comm);
  dagc::wait_all(requests);
  for (int p = 0; p < ranks; ++p) expect(in[static_cast<std::size_t>(p)] == 100 * p + rank, "alltoallv");
  dagc::post_barrier(requests, comm);
  dagc::wait_all(requests);
  dagc::wait_all(requests);  // nothing posted: nothing to wait for
}

template <class... T>
void every_type() {
  dagc::Requests sends, receives;
  for (std::int64_t n : {0, 1, 1000, 400000}) (scalar_peers<T>(sends, receives, n), ...);
}

// With several numbers of ranks a host: each rank but a negative one is on this host or on another.
void hosts() {
  for (int each = 1; each <= 3; ++each) {
    setenv("DAGC_RANKS_PER_HOST", std::to_string(each).c_str(), 1);
    dagc::Hosts found;
    found.find(comm);
    const int first = rank - rank % each;
    expect(found.local().rank == rank % each && found.local().ranks == std::min(each, ranks - first), "the ranks of this host");
    for (int p = -1; p < ranks; ++p) {
      const bool here = p >= 0 && p / each == rank / each;
      expect(found.within(p) == (here ? p : -1) && found.between(p) == (here ? -1 : p), "the host of rank " + std::to_string(p));
    }
    // One element for each rank; those of other pairs keep their places.
    std::vector<std::int32_t> peers(static_cast<std::size_t>(ranks)), counts(peers.size(), 1);
    std::iota(peers.begin(), peers.end(), 0);
    std::vector<int> out(peers.size(), rank), in(peers.size(), -1);
    const dagc::Peers far{peers.data(), counts.data(), ranks, &dagc::Hosts::between, &found};
    dagc::Requests requests;
    dagc::post_recvs(requests, in.data(), far, 0, comm);
    dagc::post_sends(requests, out.data(), far, 0, comm);
    dagc::wait_all(requests);
    for (int p = 0; p < ranks; ++p) expect(in[static_cast<std::size_t>(p)] == found.between(p), "an element from another host");
  }
  unsetenv("DAGC_RANKS_PER_HOST");
}

void large(std::int64_t n) {
  expect(n > 0, "usage: messages [ELEMENTS]");
  std::vector<std::int8_t> out(static_cast<std::size_t>(n), 3), in(out.size());
  out[out.size() - 1] = 4;
  dagc::Requests requests;
  dagc::post_recv(requests, in.data(), n, rank, 0, comm);
  dagc::post_send(requests, out.data(), n, rank, 0, comm);
  dagc::wait_all(requests);
  expect(in == out, "large message");
}

}  // namespace

int main(int argc, char** argv) {
  dagc::Mpi mpi(&argc, &argv);
  rank = mpi.rank();
  ranks = mpi.ranks();
  if (argc > 1) {
    large(std::atoll(argv[1]));
  } else {
    every_type<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
               std::uint64_t, float, double, bool>();
    counts_form();
    hosts();
    order_ranks();
    collectives();
    expect(dagc::mpi_takes_device_pointers(), "on the host target every MPI takes device pointers");
  }
  if (rank == 0) std::puts("good");
  return 0;
}
