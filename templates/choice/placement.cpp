// placement.hpp for Python, which puts `#define DEVICES K` before it: dagc/choice/placement.py.
#include "dagc/placement.hpp"

// `seconds`: DEVICES for each op. `readers`: of all values, one after the other; value i has those from begin[i] on.
// `moves`: of each value, the seconds from each device to each. `begins`, `ends`: of each value, a bit for each device.
// Fills in the device of each op, and the lower bound of the seconds. Returns the seconds of the program.
extern "C" double dagc_place(int n_ops, const double* seconds, int n_values, const int* producers, const int* begin,
                             const int* readers, const double* moves, const int* begins, const int* ends, int nodes,
                             int* sides, double* bound) {
  dagc::placement::Problem<DEVICES> problem;
  problem.ops.resize(static_cast<std::size_t>(n_ops));
  for (auto& op : problem.ops) {
    std::copy_n(seconds, DEVICES, op.seconds);
    seconds += DEVICES;
  }
  for (int i = 0; i < n_values; ++i) {
    problem.values.push_back({producers[i], readers + begin[i], begin[i + 1] - begin[i], {},
                              static_cast<unsigned>(begins[i]), static_cast<unsigned>(ends[i])});
    std::copy_n(moves, DEVICES * DEVICES, &problem.values.back().moves[0][0]);
    moves += DEVICES * DEVICES;
  }
  std::vector<dagc::placement::Side> found;
  const auto best = dagc::placement::place(problem, &found, nodes);
  std::copy(found.begin(), found.end(), sides);
  *bound = best.bound;
  return best.seconds;
}
