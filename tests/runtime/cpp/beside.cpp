// dagc::Beside with a program that only counts, and what its thread copies to the host.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "dagc/array.hpp"
#include "dagc/beside.hpp"

struct Program {
  static constexpr int chosen_sites = 1, preparations = 0;
  MPI_Comm comm = MPI_COMM_SELF;
  int ranks = 1;
  dagc::Site sites[chosen_sites] = {{"y", [](int) -> const char* { return "row"; }}};
  std::vector<int> values;
  int computed = 0;
  bool same = true;
  double least_runs = 0;

  void compute_late_features() {
    ++computed;
    const std::int64_t n = static_cast<std::int64_t>(values.size());
    dagc::Elements<int> all({values.data(), nullptr, n}, 0, n);
    const int* const copy = all;
    for (std::int64_t i = 0; i < n; ++i) same = same && copy[i] == values[static_cast<std::size_t>(i)];
    const std::vector<int> part = all.sample(4, 8);
    const std::vector<int> two = all.parts({{n - 3, 3}, {1, 1}});
    for (int i = 0; i < 4; ++i) same = same && two[static_cast<std::size_t>(i)] == (i < 3 ? copy[n - 3 + i] : copy[1]);
    for (int i = 0; i < 32; ++i) same = same && part[static_cast<std::size_t>(i)] == copy[i / 8 * (n / 4) + i % 8];
  }
  void choose() {}
  std::vector<std::int64_t*> members(int) { return {}; }
  static dagc::Payoff payoff(int, int) { return {0, 0}; }
  bool needs(int) const { return false; }
  void prepare(int, cudaStream_t) {}
  void make_graphs() {}
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  // Milliseconds of runs (0: there are none), and how many must be left for a choice to pay; 100 are.
  for (const auto& [wait, least] : {std::pair{0, 0.0}, {10, 100.5}, {10, 100.0}, {10, HUGE_VAL}}) {
    Program p;
    p.least_runs = least;
    for (int i = 0; i < 700'000; ++i) p.values.push_back(i * 7);
    dagc::Beside<Program> beside(p);
    beside.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    for (int runs = 2; least <= 100 ? wait != 0 && !beside.settled() : runs < 20; ++runs) beside.after(runs, 100);
    beside.stop();
    std::printf("%d %s: %s\n", p.computed, p.same ? "same" : "other", beside.text().c_str());
  }
  MPI_Finalize();
}
