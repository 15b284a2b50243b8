// The choices of a program, and checks of its results: those of one run against the reference, those of several runs in
// a row, if a run changes what the next one reads, against those of as many separate runs.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "dagc/capture.hpp"
#include "dagc/store.hpp"
#include "dagc/check.hpp"
#include "dagc/choice.hpp"
#include "dagc/device.hpp"
#include "dagc/measure.hpp"
#include "dagc/target.hpp"

namespace dagc {

// One line for each site, on rank 0. Collective.
inline void print_choices(const Site* sites, int n, MPI_Comm comm) {
  int rank = 0;
  DAGC_MPI(MPI_Comm_rank(comm, &rank));
  for (int i = 0; i < n; ++i) {
    const std::vector<std::int64_t> counts = counted_together(sites[i], comm);
    if (rank == 0) std::printf("%s\n", sites[i].line(counts.data()).c_str());
  }
}

// `[{"op": "y", "answer": "ell", "counts": {"chosen": 4, ...}}]`: the answer of this rank, the counts of all. Collective.
inline std::string choices_json(const Site* sites, int n, MPI_Comm comm) {
  std::string out;
  for (int i = 0; i < n; ++i) {
    const std::vector<std::int64_t> counts = counted_together(sites[i], comm);
    JsonObject site, of;
    for (int reason = 0; reason < reasons; ++reason) of.field(reason_names[reason], counts[static_cast<std::size_t>(reason)]);
    site.field("op", sites[i].op).field("answer", sites[i].text(sites[i].answer)).field("counts", of);
    out += (out.empty() ? "" : ", ") + site.text();
  }
  return "[" + out + "]";
}

// One line for each graph.
inline void print_graphs(const std::vector<GraphSize>& graphs) {
  for (const GraphSize& size : graphs)
    std::printf("graph of %lld nodes, %lld programmatic edges, without %lld redundant ones\n", static_cast<long long>(size.nodes),
                static_cast<long long>(size.programmatic), static_cast<long long>(size.redundant));
}

// `[{"nodes": 28, "redundant": 4, "programmatic": 20}]`
inline std::string graphs_json(const std::vector<GraphSize>& graphs) {
  std::string out;
  for (const GraphSize& size : graphs)
    out += (out.empty() ? "" : ", ") + JsonObject().field("nodes", size.nodes).field("redundant", size.redundant).field("programmatic", size.programmatic).text();
  return "[" + out + "]";
}

// The number of consecutive runs that are checked, at most `most` (0: any number).
inline std::int64_t runs_in_a_row(std::int64_t most) { return most > 0 && most < 3 ? most : 3; }

// The last number of runs after which results of a program are compared.
template <class Program, class = void>
struct VerifiedRuns {
  static constexpr std::int64_t last = 1;
};
template <class Program>
struct VerifiedRuns<Program, std::void_t<decltype(Program::verified_runs)>> {
  static constexpr std::int64_t last = Program::verified_runs;
};

// Everything is collective; errors are the same text on every rank, "" if there is none.
template <class Program>
class Results {
 public:
  explicit Results(Program& program) : p_(program) {}

  // Reset with poison 0 or 1, `runs` runs by `run(runs)`, comparison with the reference. After one run, also those that it
  // is compared after.
  template <class Run>
  std::string after(int poison, std::int64_t runs, Run run) {
    p_.reset(poison);
    run(runs);
    std::string wrong = verify();
    for (std::int64_t i = runs + 1; runs == 1 && i <= VerifiedRuns<Program>::last && wrong.empty(); ++i) {
      run(1);
      wrong = verify(i);
      if (!wrong.empty()) wrong += ", after " + std::to_string(i) + " runs";
    }
    return wrong;
  }

  // Stores the results of `runs` runs, once. Each ends, on all ranks, before the next begins; `run` must not depend on
  // timing.
  template <class Run>
  void keep(std::int64_t runs, Run run) {
    if (kept_) return;
    kept_ = true;
    p_.reset(0);
    for (std::int64_t i = 0; i < runs; ++i) {
      run(1);
      DAGC_CUDA(cudaDeviceSynchronize());
      DAGC_MPI(MPI_Barrier(p_.comm));
    }
    p_.store.want(Store::Want::keep);
    compared(0);
    p_.store.want(Store::Want::file);
  }

  // Reset with poison 0 or 1, `runs` runs, comparison with what `keep` stored for as many.
  template <class Run>
  std::string after_like_kept(int poison, std::int64_t runs, Run run) {
    p_.reset(poison);
    run(runs);
    p_.store.want(Store::Want::kept);
    const std::string wrong = verify(0);
    p_.store.want(Store::Want::file);
    return wrong.empty() ? wrong : wrong + ", after " + std::to_string(runs) + " runs without a pause";
  }

  // After so many runs; 0: of all that is compared after some number. Afterwards inputs have their loaded values again.
  std::string verify(std::int64_t runs = 1) {
    DAGC_CUDA(cudaGetLastError());
    DAGC_CUDA(cudaDeviceSynchronize());
    std::string changed = first_wrong(changed_text(p_.changed()), p_.rank, p_.comm);
    if (!changed.empty()) p_.reload();
    const std::string overrun = first_wrong(overrun_text(p_.store.overrun()), p_.rank, p_.comm);
    if (changed.empty()) changed = overrun;
    return changed.empty() ? first_wrong(compared(runs), p_.rank, p_.comm) : changed;
  }

 private:
  std::string compared([[maybe_unused]] std::int64_t runs) {
    if constexpr (VerifiedRuns<Program>::last > 1)
      return p_.verify(runs);
    else
      return p_.verify();
  }

  Program& p_;
  bool kept_ = false;
};

}  // namespace dagc
