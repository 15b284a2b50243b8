// measure stats VALUE...                     statistics of the values, as JSON
// measure run SECONDS REPEATS MAX [FILE]     measures a sleep that is longer on higher ranks
#include "dagc/measure.hpp"
#include "dagc/message.hpp"

#include <chrono>
#include <string>
#include <thread>

namespace {

int statistics_of(int argc, char** argv) {
  std::vector<double> values;
  for (int i = 2; i < argc; ++i) values.push_back(std::atof(argv[i]));
  const auto interval = dagc::median_interval(values.size());
  dagc::JsonObject out;
  out.field("statistics", dagc::to_json(dagc::statistics(values)));
  out.field("interval", std::vector<double>{static_cast<double>(interval.first), static_cast<double>(interval.second)});
  dagc::write_json("-", out);
  return 0;
}

int run(int argc, char** argv) {
  dagc::Mpi mpi(&argc, &argv);
  const dagc::MeasureOptions options{std::atof(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  std::int64_t iterations = 0, resets = 0, since_reset = 0, longest = 0;
  const auto run = [&](std::int64_t n) {
    iterations += n;
    longest = std::max(longest, since_reset += n);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (mpi.rank() + 1) * n));
  };
  const auto reset = [&] {
    ++resets;
    since_reset = 0;
  };
  const dagc::Measurement m = dagc::measure(run, reset, MPI_COMM_WORLD, options);
  // Every rank must have got the same.
  double low = m.stats.median, high = m.stats.median;
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &low, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &high, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  dagc::JsonObject out = dagc::environment(MPI_COMM_WORLD);
  out.field("awkward", "a \"quote\", a \\, a\ttab, \xc3\xa9").field("nothing", std::nan("")).field("agree", low == high);
  out.field("iterations", iterations).field("resets", resets).field("longest", longest);
  out.field("measurement", dagc::to_json(m));
  if (mpi.rank() == 0) {
    dagc::print_table(dagc::table(m));
    dagc::write_json(argc > 5 ? argv[5] : "-", out);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return std::string(argv[1]) == "stats" ? statistics_of(argc, argv) : run(argc, argv); }
