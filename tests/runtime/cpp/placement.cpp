// Reads problems, and prints of each: whether it is a chain, the seconds, and the side of each op, as `place` has it and
// as the minimum cut has it.
#include "dagc/placement.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

using namespace dagc::placement;

namespace {

double number() {
  std::string text;
  std::cin >> text;
  return std::strtod(text.c_str(), nullptr);  // also inf
}

int whole() { return static_cast<int>(number()); }

void print(const Problem& problem, const std::vector<Side>& sides) {
  std::printf(" %.17g ", cost(problem, sides.data()));
  for (const Side s : sides) std::printf("%d", static_cast<int>(s));
}

}  // namespace

int main() {
  for (int problems = whole(); problems > 0; --problems) {
    Problem problem;
    problem.ops.resize(static_cast<std::size_t>(whole()));
    for (Op& op : problem.ops)
      for (double& s : op.seconds) s = number();
    problem.values.resize(static_cast<std::size_t>(whole()));
    std::vector<std::vector<int>> readers(problem.values.size());
    for (std::size_t i = 0; i < problem.values.size(); ++i) {
      const int producer = whole();
      readers[i].resize(static_cast<std::size_t>(whole()));
      for (int& r : readers[i]) r = whole();
      const double to_device = number(), to_host = number();
      const bool on_the_host = whole() != 0, on_the_device = whole() != 0, ends = whole() != 0;
      problem.values[i] = {producer, readers[i].data(), static_cast<int>(readers[i].size()), to_device, to_host, on_the_host, on_the_device, ends};
    }
    std::vector<Step> steps(problem.ops.size());
    std::vector<Side> sides;
    std::printf("%d", as_chain(problem, steps.data()) ? 1 : 0);
    place(problem, &sides);
    print(problem, sides);
    place_cut(problem, sides.data());
    print(problem, sides);
    std::printf("\n");
  }
}
