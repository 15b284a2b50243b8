// The ranks of a program on its processes by what they send (`rank_order=neighbours`).
//
//   dagc::OrderedRanks ordered;
//   ordered.sends(to, bytes);                  // each message of the rank that has the number of this process
//   MPI_Comm comm = ordered.order(MPI_COMM_WORLD);   // collective: this process's rank in `comm` is the one it runs
#pragma once

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/communicator.hpp"
#include "dagc/message.hpp"
#include "dagc/npy.hpp"
#include "dagc/rank_order.hpp"

namespace dagc {

class OrderedRanks {
 public:
  void sends(std::int64_t to, std::int64_t bytes) {
    if (to >= 0 && to <= INT_MAX && bytes > 0) sent_[static_cast<int>(to)] += bytes;
  }

  // Ranks and counts in arrays. `size`: bytes of an element.
  void sends(const NpyArray& to, const NpyArray& counts, std::int64_t size) {
    const std::int64_t many = std::min(to.elements(), counts.elements());
    for (std::int64_t i = 0; i < many; ++i) sends(to.as<std::int32_t>()[i], counts.as<std::int32_t>()[i] * size);
  }

  // What was gained, once they are ordered.
  const std::string& text() const { return text_; }

  MPI_Comm order(MPI_Comm all) {
    int rank = 0, ranks = 1;
    DAGC_MPI(MPI_Comm_rank(all, &rank));
    DAGC_MPI(MPI_Comm_size(all, &ranks));
    const std::vector<int> hosts = gathered(std::vector<int>{first_of_host(all)}, ranks, all).first;
    std::vector<std::int64_t> mine;  // pairs of receiver and bytes
    for (const auto& [to, bytes] : heaviest(sent_)) mine.insert(mine.end(), {to, bytes});
    const auto [every, counts] = gathered(mine, ranks, all);
    Bonds bonds(static_cast<std::size_t>(ranks));
    std::size_t at = 0;
    for (int from = 0; from < ranks; ++from)
      for (const std::size_t end = at + static_cast<std::size_t>(counts[static_cast<std::size_t>(from)]); at < end; at += 2)
        if (every[at] < ranks) bonds.add(from, static_cast<int>(every[at]), every[at + 1]);
    const RankOrder found = near_order(bonds, hosts);
    text_ = "rank_order=neighbours: " + std::to_string(found.between) + " bytes of an iteration between hosts, " +
            std::to_string(found.before) + " in the order of the processes";
    ranks_.split(all, "rank_order", 0, found.rank[static_cast<std::size_t>(rank)]);
    return ranks_.comm;
  }

 private:
  // Those of all ranks, one after the other, and how many each has.
  template <class T>
  static std::pair<std::vector<T>, std::vector<int>> gathered(const std::vector<T>& mine, int ranks, MPI_Comm all) {
    std::vector<int> counts(static_cast<std::size_t>(ranks)), starts;
    const int count = static_cast<int>(mine.size());
    DAGC_MPI(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, all));
    int sum = 0;
    for (const int each : counts) {
      starts.push_back(sum);
      sum += each;
    }
    std::vector<T> out(static_cast<std::size_t>(sum));
    DAGC_MPI(MPI_Allgatherv(mine.data(), count, mpi_type<T>(), out.data(), counts.data(), starts.data(), mpi_type<T>(), all));
    return {std::move(out), std::move(counts)};
  }

  std::map<int, std::int64_t> sent_;  // bytes by receiver
  Communicator ranks_;
  std::string text_;
};

}  // namespace dagc
