// What is chosen when the program starts: the decision of all ranks, the reason, and the numbers of each.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// Why an answer was taken: as the chooser says; or the default, since the chooser is not sure enough, a feature lies far
// outside of what was measured, is not finite, or a `require` of what was chosen does not hold. In the order of chooser.h.
constexpr int reasons = 5;
constexpr int constraint = 4;
constexpr const char* reason_names[reasons] = {"chosen", "unsure", "outside", "not finite", "constraint"};

// A place where something is chosen. `text`: what an answer stands for. `counts`: how often each reason, on this rank.
struct Site {
  const char* op;
  const char* (*text)(int answer);
  int answer = 0;
  std::int64_t counts[reasons] = {};

  void take(int which, int reason) {
    answer = which;
    ++counts[reason];
  }

  // "y: ell (chosen 3, outside 1)"; `numbers`: of each reason.
  std::string line(const std::int64_t* numbers) const {
    std::string why;
    for (int i = 0; i < reasons; ++i)
      if (numbers[i] != 0) why += (why.empty() ? "" : ", ") + (reason_names[i] + (" " + std::to_string(numbers[i])));
    return std::string(op) + ": " + text(answer) + " (" + why + ")";
  }
};

// Adds the counts of earlier sites, and keeps the sums there. Returns the lines of all, of this rank.
inline std::string with_earlier(Site* sites, int n, std::vector<Site>* earlier) {
  std::string out;
  for (int i = 0; i < n; ++i) {
    if (static_cast<std::size_t>(i) < earlier->size())
      for (int reason = 0; reason < reasons; ++reason) sites[i].counts[reason] += (*earlier)[static_cast<std::size_t>(i)].counts[reason];
    out += (out.empty() ? "" : "\n") + sites[i].line(sites[i].counts);
  }
  earlier->assign(sites, sites + n);
  return out;
}

// The counts of all ranks together, on every rank. Collective.
inline std::vector<std::int64_t> counted_together(const Site& site, MPI_Comm comm) {
  std::vector<std::int64_t> sum(reasons);
  DAGC_MPI(MPI_Allreduce(site.counts, sum.data(), reasons, MPI_INT64_T, MPI_SUM, comm));
  return sum;
}

// The answer with the most votes, the lowest of equal ones: the same on every rank. Collective.
inline int voted(int mine, int answers, MPI_Comm comm) {
  std::vector<int> votes(static_cast<std::size_t>(answers), 0);
  votes[static_cast<std::size_t>(mine)] = 1;
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, votes.data(), answers, MPI_INT, MPI_SUM, comm));
  return static_cast<int>(std::max_element(votes.begin(), votes.end()) - votes.begin());
}

// The answers by number.
struct ByNumber {
  void operator()(int*) const {}
};

// All ranks take one answer: the one that most want; where a `require` of that does not hold on some rank, they vote again among
// the others. `take(answer)` sets what it stands for, and returns the `require` that does not hold here, null if all do.
// `order(int* all)` puts all answers, given by number, into the order in which this rank wants them. Fails where none is left.
// Collective.
template <class Take, class Order = ByNumber>
void decide(Site& site, int answers, int wanted, int reason, MPI_Comm comm, Take take, Order order = {}) {
  if (wanted < 0 || wanted >= answers) fail(exit_run_failed, std::string(site.op) + ": the chooser gave an answer that does not exist");
  const char* broken = nullptr;
  const auto holds = [&](int answer) {
    together(comm, [&] { broken = take(answer); });  // which may compute features
    int any = broken != nullptr;
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, comm));
    return any == 0;
  };
  int answer = voted(wanted, answers, comm);
  bool left = holds(answer);
  if (!left) {
    reason = constraint;
    std::vector<int> next(static_cast<std::size_t>(answers));
    std::iota(next.begin(), next.end(), 0);
    order(next.data());
    while (next.size() > 1 && !left) {
      next.erase(std::find(next.begin(), next.end(), answer));
      answer = voted(next.front(), answers, comm);
      left = holds(answer);
    }
    if (!left) broken = take(0);
    if (!left && broken != nullptr) fail(exit_bad_input, std::string(broken) + " does not hold for these data, nor is another choice left");
    if (!left) fail(exit_bad_input, std::string(site.op) + ": a `require` of the default does not hold for the data of another rank");
  }
  site.take(answer, reason);
}

}  // namespace dagc
