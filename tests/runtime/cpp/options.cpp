// Prints what was parsed.
#include "dagc/options.hpp"

int main(int argc, char** argv) {
  std::string data;
  double seconds = 0.01;
  std::int64_t repeats = 20;
  bool check_only = false;
  dagc::Options options("bench", "Runs and times the program.");
  options.text("--data", "DIR", &data, "arrays, from `dagc setup`").required();
  options.number("--seconds", "S", &seconds, "length of a measurement", 1e-6, 3600.0);
  options.integer("--repeats", "N", &repeats, "measurements", 1, 1000);
  options.flag("--check-only", &check_only, "check the results, time nothing");
  options.parse(argc, argv);
  std::printf("%s %g %lld %d\n", data.c_str(), seconds, static_cast<long long>(repeats), check_only);
  return 0;
}
