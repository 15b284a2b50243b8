// What is chosen when the program starts: the decision of all ranks, the reason, and the numbers of each.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// Why an answer was taken: as the chooser says; or the default, since the chooser is not sure enough, a feature lies far
// outside of what was measured, is not finite, or a `require` of what was chosen does not hold; or another one, since what was
// chosen failed at inputs like this one when it was tuned (avoided), or all did (failed). In the order of chooser.h.
constexpr int reasons = 7;
constexpr int constraint = 4, avoided = 5, failed = 6;
constexpr const char* reason_names[reasons] = {"chosen", "unsure", "outside", "not finite", "constraint", "avoided", "failed"};

// A place where something is chosen. `text`: what an answer stands for. `counts`: how often each reason, on this rank.
struct Site {
  const char* op;
  const char* (*text)(int answer);
  int answer = 0;
  int reason = 0;  // of the last choice
  std::int64_t counts[reasons] = {};

  void take(int which, int why) {
    answer = which;
    reason = why;
    ++counts[why];
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

// No answer has failed.
struct Worked {
  void operator()(unsigned char*) const {}
};

// All ranks take one answer: the one that most want; where a `require` of that does not hold on some rank, or where it failed at
// inputs like that of some rank when it was tuned, they vote again among the others. Those that failed come last, the default
// first of them. `take(answer)` sets what it stands for, and returns the `require` that does not hold here, null if all do.
// `order(int* all)` puts all answers, given by number, into the order in which this rank wants them; `failures(unsigned char* all)`
// marks those that failed. Fails where none is left. Collective.
template <class Take, class Order = ByNumber, class Failures = Worked>
void decide(Site& site, int answers, int wanted, int reason, MPI_Comm comm, Take take, Order order = {}, Failures failures = {}) {
  if (wanted < 0 || wanted >= answers) fail(exit_run_failed, std::string(site.op) + ": the chooser gave an answer that does not exist");
  std::vector<unsigned char> bad(static_cast<std::size_t>(answers), 0);
  if constexpr (!std::is_same_v<Failures, Worked>) {
    failures(bad.data());
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, bad.data(), answers, MPI_UNSIGNED_CHAR, MPI_MAX, comm));
  }
  const auto is_bad = [&](int answer) { return bad[static_cast<std::size_t>(answer)] != 0; };
  const char* broken = nullptr;
  const auto holds = [&](int answer) {
    together(comm, [&] { broken = take(answer); });  // which may compute features
    int any = broken != nullptr;
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, comm));
    return any == 0;
  };
  int answer = voted(wanted, answers, comm);
  const int first = answer;
  bool left = !is_bad(first) && holds(first);
  if (!left) {
    reason = is_bad(first) ? avoided : constraint;
    std::vector<int> next(static_cast<std::size_t>(answers));
    std::iota(next.begin(), next.end(), 0);
    order(next.data());
    for (const bool last : {false, true}) {
      std::vector<int> of;
      if (last && is_bad(0)) of.push_back(0);
      for (const int one : next)
        if (is_bad(one) == last && (one != first || last) && (one != 0 || !last)) of.push_back(one);
      while (!of.empty() && !left) {
        answer = last && of.front() == 0 ? 0 : voted(of.front(), answers, comm);
        left = holds(answer);
        of.erase(std::find(of.begin(), of.end(), answer));
        if (left && last) reason = failed;
      }
    }
    if (!left) broken = take(0);
    if (!left && broken != nullptr) fail(exit_bad_input, std::string(broken) + " does not hold for these data, nor is another choice left");
    if (!left) fail(exit_bad_input, std::string(site.op) + ": a `require` of the default does not hold for the data of another rank");
  }
  site.take(answer, reason);
}

// On rank 0, the text of a warning if nothing was left but an answer that failed at inputs like these when it was tuned; else "".
// Collective.
inline std::string failed_before(const Site& site, MPI_Comm comm) {
  const int here = site.reason == failed;
  int any = 0, rank = 0;
  DAGC_MPI(MPI_Reduce(&here, &any, 1, MPI_INT, MPI_MAX, 0, comm));
  DAGC_MPI(MPI_Comm_rank(comm, &rank));
  if (rank != 0 || any == 0) return "";
  return std::string(site.op) + ": every choice that is left failed at inputs like this one when it was tuned; " + site.text(site.answer) +
         " is used: check its results";
}

}  // namespace dagc
