// placement.hpp for Python: dagc/choice/placement.py.
#include "dagc/placement.hpp"

namespace {

constexpr int begins_on_host = 1, begins_on_device = 2, ends_on_host = 4;  // bits of `places`

}  // namespace

// `seconds`: two for each op. `readers`: of all values, one after the other; value i has those from begin[i] on.
// `moves`: of each value, the seconds to the device and to the host. Fills in the side of
// each op, and returns the seconds of the program.
extern "C" double dagc_place(int n_ops, const double* seconds, int n_values, const int* producers, const int* begin,
                             const int* readers, const double* moves, const int* places, int* sides) {
  dagc::placement::Problem problem;
  for (int i = 0; i < n_ops; ++i) problem.ops.push_back({{seconds[2 * i], seconds[2 * i + 1]}});
  for (int i = 0; i < n_values; ++i)
    problem.values.push_back({producers[i], readers + begin[i], begin[i + 1] - begin[i], moves[2 * i], moves[2 * i + 1],
                              (places[i] & begins_on_host) != 0, (places[i] & begins_on_device) != 0,
                              (places[i] & ends_on_host) != 0});
  std::vector<dagc::placement::Side> found;
  const double total = dagc::placement::place(problem, &found);
  for (int i = 0; i < n_ops; ++i) sides[i] = found[static_cast<std::size_t>(i)];
  return total;
}
