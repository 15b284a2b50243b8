// Which rank of a program each process runs (`rank_order=neighbours`): ranks that send much to each other share a host.
//
//   dagc::Bonds bonds(ranks);
//   for (const auto& [to, bytes] : dagc::heaviest(sent)) bonds.add(from, to, bytes);         // of each rank
//   const dagc::RankOrder found = dagc::near_order(bonds, hosts);   // hosts[p]: that of process p; found.rank[p]: the rank it runs
//
// Ranks are spread over the hosts as the processes are. From two such divisions, that of the processes and one that is grown
// host by host, two ranks are exchanged as long as that leaves fewer bytes between hosts (Kernighan and Lin). The better of
// both is taken, so there are never more bytes between hosts than without it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace dagc {

// Bytes between each two ranks, both ways.
class Bonds {
 public:
  explicit Bonds(std::size_t ranks) : of_(ranks) {}

  void add(int from, int to, std::int64_t bytes) {
    if (from == to || to < 0) return;
    for (const auto& [one, other] : {std::pair(from, to), std::pair(to, from)}) of_[static_cast<std::size_t>(one)][other] += bytes;
  }
  std::size_t ranks() const { return of_.size(); }
  const std::map<int, std::int64_t>& of(int rank) const { return of_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::map<int, std::int64_t>> of_;
};

// Of the bytes that a rank sends, by receiver, those that count: to the 64 that receive most, so that all ranks of many know them.
inline std::vector<std::pair<int, std::int64_t>> heaviest(const std::map<int, std::int64_t>& sent) {
  std::vector<std::pair<int, std::int64_t>> all(sent.begin(), sent.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (all.size() > 64) all.resize(64);
  return all;
}

// The host of each rank, and the ranks of each.
class Division {
 public:
  Division(const Bonds& bonds, std::vector<int> host) : bonds_(&bonds), host_(std::move(host)) {
    for (std::size_t r = 0; r < host_.size(); ++r) members_[host_[r]].push_back(static_cast<int>(r));
  }

  // As many ranks on each host as in `like`: to the rank with the fewest bonds to those that are left, one joins after the other
  // that has the most with the host, of these the one whose neighbours have the most with it, so that a square is closed before
  // a line goes on, and then the one with the fewest to those that are left.
  static Division grown(const Bonds& bonds, const Division& like) {
    const int n = static_cast<int>(bonds.ranks()), nowhere = -1;
    std::vector<int> host(bonds.ranks(), nowhere);
    const auto bytes = [&](int rank, int to) {
      std::int64_t sum = 0;
      for (const auto& [other, between] : bonds.of(rank))
        if (host[static_cast<std::size_t>(other)] == to) sum += between;
      return sum;
    };
    for (const auto& group : like.members_) {
      const int name = group.first;
      std::vector<int> next;  // with a bond to a rank of this host, in the order in which they were met
      for (std::size_t size = 0; size < group.second.size(); ++size) {
        int best = nowhere;
        std::tuple<std::int64_t, std::int64_t, std::int64_t> of_best;
        const auto consider = [&](int rank) {
          if (host[static_cast<std::size_t>(rank)] != nowhere) return;
          std::int64_t around = 0;
          for (const auto& [other, between] : bonds.of(rank)) around += size == 0 ? 0 : std::min(between, bytes(other, name));
          const std::tuple value(bytes(rank, name), around, -bytes(rank, nowhere));
          if (best == nowhere || value > of_best) best = rank, of_best = value;
        };
        for (const int rank : next) consider(rank);
        if (best == nowhere)
          for (int rank = 0; rank < n; ++rank) consider(rank);
        host[static_cast<std::size_t>(best)] = name;
        for (const auto& [other, between] : bonds.of(best))
          if (std::find(next.begin(), next.end(), other) == next.end()) next.push_back(other);
      }
    }
    return Division(bonds, std::move(host));
  }

  // Exchanges ranks while that helps.
  void improve() {
    for (bool better = true; better;) {
      better = false;
      for (std::size_t r = 0; r < host_.size(); ++r) better = improve(static_cast<int>(r)) || better;
    }
  }

  std::int64_t between_hosts() const {
    std::int64_t sum = 0;
    for (std::size_t r = 0; r < host_.size(); ++r)
      for (const auto& [other, bytes] : bonds_->of(static_cast<int>(r))) sum += at(other) == host_[r] ? 0 : bytes;
    return sum / 2;
  }

  // The rank of each process: the ranks of a host, in order, are those of its processes.
  std::vector<int> order(const std::vector<int>& hosts) const {
    std::map<int, std::size_t> used;
    std::vector<int> out;
    for (const int name : hosts) out.push_back(members_.at(name)[used[name]++]);
    return out;
  }

 private:
  int at(int rank) const { return host_[static_cast<std::size_t>(rank)]; }

  std::int64_t bytes(int rank, int host) const {
    std::int64_t sum = 0;
    for (const auto& [other, between] : bonds_->of(rank))
      if (at(other) == host) sum += between;
    return sum;
  }

  // Exchanges a rank with the one of another host with which that saves most.
  bool improve(int rank) {
    const int own = at(rank);
    const std::int64_t here = bytes(rank, own);
    std::map<int, std::int64_t> there;
    for (const auto& [other, between] : bonds_->of(rank))
      if (at(other) != own) there[at(other)] += between;
    std::int64_t most = 0;
    int with = -1;
    for (const auto& [name, theirs] : there)
      for (const int other : members_.at(name)) {
        const auto found = bonds_->of(rank).find(other);
        const std::int64_t both = found == bonds_->of(rank).end() ? 0 : found->second;
        const std::int64_t saved = theirs - here + bytes(other, own) - bytes(other, name) - 2 * both;
        if (saved > most) most = saved, with = other;
      }
    if (with < 0) return false;
    const int name = at(with);
    std::swap(host_[static_cast<std::size_t>(rank)], host_[static_cast<std::size_t>(with)]);
    for (const auto& [host, out, in] : {std::tuple(own, rank, with), std::tuple(name, with, rank)}) {
      std::vector<int>& members = members_.at(host);
      *std::find(members.begin(), members.end(), out) = in;
      std::sort(members.begin(), members.end());
    }
    return true;
  }

  const Bonds* bonds_;
  std::vector<int> host_;
  std::map<int, std::vector<int>> members_;
};

// The rank of each process, the bytes that are then between hosts, and those before.
struct RankOrder {
  std::vector<int> rank;
  std::int64_t between, before;
};

inline RankOrder near_order(const Bonds& bonds, const std::vector<int>& hosts) {
  Division given(bonds, hosts), grown = Division::grown(bonds, given);
  const std::int64_t before = given.between_hosts();
  given.improve();
  grown.improve();
  const Division& best = grown.between_hosts() < given.between_hosts() ? grown : given;
  return {best.order(hosts), best.between_hosts(), before};
}

}  // namespace dagc
