// Measuring an iteration, statistics of the measurements, and their table and JSON.
//
// A measurement: barrier, then as many iterations as fill `seconds` (the same number on every rank), then the maximum
// over the ranks of the time per iteration. The iteration must end synchronised, as traversals do. Warm-up first; the
// number of iterations is found by doubling, which warms up too.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dagc/binding.hpp"
#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

// ---- statistics ----------------------------------------------------------------------------------------------------

// Quantile `q` in [0, 1] of sorted values, linear between neighbours (NumPy's default); NaN if there are none.
inline double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(sorted.size() - 1);
  const std::size_t low = static_cast<std::size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

// Ranks [low, high], from 0, of the order statistics that bound the median with at least 95% confidence for any
// distribution: the largest r with P(Binomial(n, 1/2) < r) <= 2.5%. With fewer than 6 values, all of them (less confidence).
inline std::pair<std::size_t, std::size_t> median_interval(std::size_t n) {
  if (n == 0) return {0, 0};
  double below = 0;
  std::size_t rank = 0;
  for (std::size_t k = 0; k < n / 2; ++k) {
    const double count = static_cast<double>(n), taken = static_cast<double>(k);
    below += std::exp(std::lgamma(count + 1) - std::lgamma(taken + 1) - std::lgamma(count - taken + 1) - count * std::log(2.0));
    if (below > 0.025) break;
    rank = k;
  }
  return {rank, n - 1 - rank};
}

struct Statistics {
  double median = 0, min = 0, max = 0, lower_quartile = 0, upper_quartile = 0;
  double mean = 0, variation = 0;                  // coefficient of variation: deviation of the sample over its mean
  double median_low = 0, median_high = 0;          // 95% interval of the median
};

inline Statistics statistics(std::vector<double> values) {
  Statistics s;
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  s.median = quantile(values, 0.5);
  s.min = values.front();
  s.max = values.back();
  s.lower_quartile = quantile(values, 0.25);
  s.upper_quartile = quantile(values, 0.75);
  double sum = 0, squares = 0;
  for (double v : values) sum += v;
  s.mean = sum / static_cast<double>(values.size());
  for (double v : values) squares += (v - s.mean) * (v - s.mean);
  if (values.size() > 1 && s.mean > 0) s.variation = std::sqrt(squares / static_cast<double>(values.size() - 1)) / s.mean;
  const auto interval = median_interval(values.size());
  s.median_low = values[interval.first];
  s.median_high = values[interval.second];
  return s;
}

// ---- measuring -----------------------------------------------------------------------------------------------------

struct MeasureOptions {
  double seconds = 0.01;            // of one measurement
  std::int64_t repeats = 20;        // measurements
  std::int64_t max_iterations = 0;  // between two resets; 0: no limit (`repeat N` of programs whose data drift)
};

// The same on all ranks.
struct Measurement {
  std::vector<double> seconds;  // per iteration, one entry a measurement, in the order taken
  std::int64_t iterations = 0;  // of one measurement
  Statistics stats;
};

namespace detail {

// Seconds of `iterations` iterations, maximum over the ranks; a reset, untimed, before each batch.
inline double timed(const std::function<void(std::int64_t)>& run, const std::function<void()>& reset, std::int64_t iterations,
                    std::int64_t batch, MPI_Comm comm) {
  double total = 0;
  for (std::int64_t done = 0; done < iterations; done += batch) {
    const std::int64_t n = std::min(batch, iterations - done);
    reset();
    DAGC_MPI(MPI_Barrier(comm));
    const double start = MPI_Wtime();
    run(n);
    double taken = MPI_Wtime() - start, slowest = 0;
    DAGC_MPI(MPI_Allreduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, comm));
    total += slowest;
  }
  return total;
}

}  // namespace detail

// Collective over `comm`. `run(n)` is n iterations; `reset` restores what an iteration changes and its next run reads; it may do nothing.
// Returns on every rank the same numbers.
inline Measurement measure(const std::function<void(std::int64_t)>& run, const std::function<void()>& reset, MPI_Comm comm,
                           const MeasureOptions& options = {}) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;
  const std::int64_t batch = options.max_iterations > 0 ? options.max_iterations : most;
  Measurement out;
  std::int64_t n = 1;
  double taken = detail::timed(run, reset, n, batch, comm);
  while (taken < options.seconds && n < most / 2) {
    // Extrapolate from the last time, but at most tenfold: the first times are slow and short.
    const double factor = taken > 0 ? std::min(10.0, 1.05 * options.seconds / taken) : 10.0;
    n = std::max(n + 1, static_cast<std::int64_t>(static_cast<double>(n) * factor));
    taken = detail::timed(run, reset, n, batch, comm);
  }
  out.iterations = n;
  for (std::int64_t i = 0; i < options.repeats; ++i)
    out.seconds.push_back(detail::timed(run, reset, n, batch, comm) / static_cast<double>(n));
  out.stats = statistics(out.seconds);
  return out;
}

// One measurement of at least `seconds`: seconds per iteration, maximum over the ranks, the same on every rank.
//
// A first batch of about a tenth of it warms up and gives the number of iterations of the measurement; `guess` (seconds of
// an iteration, about; 0: unknown) gives that of the first batch. `max_iterations`: as in MeasureOptions.
// Collective.
inline double measure_once(const std::function<void(std::int64_t)>& run, const std::function<void()>& reset, MPI_Comm comm,
                           double seconds, double guess, std::int64_t max_iterations, std::int64_t* iterations) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;
  const std::int64_t batch = max_iterations > 0 ? max_iterations : most;
  const auto needed = [most](double goal, double each) {
    return each > 0 ? std::min(most, static_cast<std::int64_t>(std::ceil(std::min(goal / each, 1e15))) + 1) : most;
  };
  std::int64_t n = guess > 0 && guess < seconds ? needed(0.1 * seconds, guess) : 1;
  double taken = detail::timed(run, reset, n, batch, comm);
  while (taken < 0.05 * seconds) {
    n = std::max(n + 1, std::min(10 * n, needed(0.1 * seconds, taken / static_cast<double>(n))));
    taken = detail::timed(run, reset, n, batch, comm);
  }
  do {
    n = taken < seconds ? needed(1.05 * seconds, taken / static_cast<double>(n)) : n;
    taken = detail::timed(run, reset, n, batch, comm);
  } while (taken < seconds);
  *iterations = n;
  return taken / static_cast<double>(n);
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

// Text with quotes, as in JSON. Bytes above 127 are kept: they are UTF-8.
inline std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// An object, written field by field: JsonObject().field("ranks", 4).field("program", "spmv").text().
class JsonObject {
 public:
  JsonObject& field(const std::string& name, const std::string& value) { return raw(name, json_text(value)); }
  JsonObject& field(const std::string& name, const char* value) { return raw(name, json_text(value)); }
  JsonObject& field(const std::string& name, bool value) { return raw(name, value ? "true" : "false"); }
  JsonObject& field(const std::string& name, int value) { return raw(name, std::to_string(value)); }
  JsonObject& field(const std::string& name, std::int64_t value) { return raw(name, std::to_string(value)); }
  JsonObject& field(const std::string& name, double value) { return raw(name, number(value)); }
  JsonObject& field(const std::string& name, const std::vector<double>& values) {
    std::string list;
    for (double v : values) list += (list.empty() ? "" : ", ") + number(v);
    return raw(name, "[" + list + "]");
  }
  JsonObject& field(const std::string& name, const JsonObject& value) { return raw(name, value.text()); }
  JsonObject& raw(const std::string& name, const std::string& json) {
    body_ += (body_.empty() ? "" : ", ") + json_text(name) + ": " + json;
    return *this;
  }
  std::string text() const { return "{" + body_ + "}"; }

 private:
  static std::string number(double value) {  // JSON has no NaN and no infinity
    if (!std::isfinite(value)) return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }
  std::string body_;
};

// ---- provenance ----------------------------------------------------------------------------------------------------

// Machine and tools of a measurement. Collective over `comm`; "hosts" is complete on every rank.
inline JsonObject environment(MPI_Comm comm) {
  int rank = 0, ranks = 1, length = 0;
  DAGC_MPI(MPI_Comm_rank(comm, &rank));
  DAGC_MPI(MPI_Comm_size(comm, &ranks));
  char name[MPI_MAX_PROCESSOR_NAME] = "", library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  DAGC_MPI(MPI_Get_processor_name(name, &length));
  DAGC_MPI(MPI_Get_library_version(library, &length));
  std::vector<char> names(static_cast<std::size_t>(ranks) * MPI_MAX_PROCESSOR_NAME);
  DAGC_MPI(MPI_Allgather(name, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, comm));
  std::vector<std::string> distinct;
  for (int r = 0; r < ranks; ++r) distinct.emplace_back(&names[static_cast<std::size_t>(r) * MPI_MAX_PROCESSOR_NAME]);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::string hosts;
  for (const std::string& h : distinct) hosts += (hosts.empty() ? "" : ", ") + json_text(h);

  char now[32] = "";
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const std::string version(library);
  JsonObject out;
  std::string places;
  for (const std::string& place : placement_of(comm)) places += (places.empty() ? "" : ", ") + json_text(place);
  out.field("time", now).field("ranks", ranks).raw("hosts", "[" + hosts + "]").raw("placement", "[" + places + "]");
  out.field("mpi", version.substr(0, version.find_first_of("\r\n")));
#if DAGC_TARGET_CUDA
  int device = 0, driver = 0, runtime = 0;
  cudaDeviceProp properties{};
  DAGC_CUDA(cudaGetDevice(&device));
  DAGC_CUDA(cudaGetDeviceProperties(&properties, device));
  DAGC_CUDA(cudaDriverGetVersion(&driver));
  DAGC_CUDA(cudaRuntimeGetVersion(&runtime));
  const std::string nvcc = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION / 10 % 100);
  out.field("target", "cuda").field("gpu", properties.name).field("cuda_driver", driver).field("cuda_runtime", runtime);
  out.field("compiler", "nvcc " + nvcc + ", " + __VERSION__);
#else
  out.field("target", "host").field("compiler", __VERSION__);
#endif
  return out;
}

inline JsonObject to_json(const Statistics& s) {
  JsonObject out;
  out.field("median", s.median).field("min", s.min).field("max", s.max).field("mean", s.mean);
  out.field("lower_quartile", s.lower_quartile).field("upper_quartile", s.upper_quartile);
  out.field("variation", s.variation).field("median_low", s.median_low).field("median_high", s.median_high);
  return out;
}

// Times in seconds per iteration.
inline JsonObject to_json(const Measurement& m) {
  return JsonObject().field("unit", "s").field("iterations", m.iterations).field("seconds", m.seconds).field("statistics", to_json(m.stats));
}

inline std::FILE* json_stdout = stdout;  // where `--json -` writes

// For `--json -`, standard output has the JSON alone: what else is printed there, by kernels or by MPI, goes to standard
// error. Call it before MPI is initialised.
inline void keep_stdout_for(const std::string& json) {
  if (json != "-") return;
  std::fflush(stdout);
  const int kept = dup(STDOUT_FILENO);
  json_stdout = kept < 0 ? nullptr : fdopen(kept, "w");
  if (json_stdout == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail(exit_bad_input, "--json -: standard output cannot be written");
}

// To a file, or to stdout for "-"; ends with a line feed. Call it on one rank.
inline void write_json(const std::string& path, const JsonObject& object) {
  std::FILE* file = path == "-" ? json_stdout : std::fopen(path.c_str(), "w");
  if (!file) fail(exit_bad_input, path + ": cannot write");
  const bool good = std::fputs((object.text() + "\n").c_str(), file) >= 0 && std::fflush(file) == 0;
  if (file != json_stdout) std::fclose(file);
  if (!good) fail(exit_run_failed, path + ": cannot write");
}

// ---- table ---------------------------------------------------------------------------------------------------------

// A time in a suitable unit: "12.3 us".
inline std::string time_text(double seconds) {
  const char* const units[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  for (; unit < 3 && std::fabs(seconds) < 1; ++unit) seconds *= 1e3;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", seconds, units[unit]);
  return text;
}

// Rows of two columns, aligned.
inline void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& r : rows) width = std::max(width, r.first.size());
  for (const auto& r : rows) std::printf("%-*s  %s\n", static_cast<int>(width), r.first.c_str(), r.second.c_str());
  std::fflush(stdout);
}

// The rows of a measurement, for `print_table`.
inline std::vector<std::pair<std::string, std::string>> table(const Measurement& m) {
  const Statistics& s = m.stats;
  char variation[32];
  std::snprintf(variation, sizeof variation, "%.1f %%", 100 * s.variation);
  return {{"time per iteration, max over ranks", ""},
          {"  median", time_text(s.median) + "  (95%: " + time_text(s.median_low) + " to " + time_text(s.median_high) + ")"},
          {"  min, max", time_text(s.min) + ", " + time_text(s.max)},
          {"  quartiles", time_text(s.lower_quartile) + ", " + time_text(s.upper_quartile)},
          {"  variation", variation},
          {"measurements", std::to_string(m.seconds.size()) + " of " + std::to_string(m.iterations) + " iterations"}};
}

}  // namespace dagc
