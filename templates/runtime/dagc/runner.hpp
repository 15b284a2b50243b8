// Executes any traversal of a program from a table, without compiling.
//
// A table is rows of three numbers (kind, a, b):
//   0, op, stream      issue an op (stream -1: a CPU op)
//   1, event, stream   record the event in the stream
//   2, event, stream   the stream waits for the event
//   3, event, -1       the CPU waits for the event
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/device.hpp"
#include "dagc/measure.hpp"
#include "dagc/options.hpp"
#include "dagc/target.hpp"

namespace dagc {

enum RowKind : std::int32_t { row_issue = 0, row_record = 1, row_wait = 2, row_sync = 3 };

struct Row {
  std::int32_t kind, a, b;
};
static_assert(sizeof(Row) == 12, "rows are given as plain int32 triples");

// One op of the program: what it does, and its name.
template <class Program>
struct TableOp {
  void (*issue)(Program&, cudaStream_t);
  const char* name;
  bool gpu;
};

template <class Program>
class Runner {
 public:
  using Op = TableOp<Program>;

  Runner(const Op* ops, std::int32_t count) : ops_(ops), count_(count) {}

  Program& program() { return program_; }

  void open(const std::string& data, MPI_Comm comm) {
    comm_ = comm;
    DAGC_MPI(MPI_Comm_rank(comm, &rank_));
    program_.load(data, comm, 0, 0);
  }

  // "" where the table can be executed; makes the streams and events that it needs.
  std::string prepare(const Row* rows, std::int64_t n) {
    std::int32_t streams = 0, events = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Row& r = rows[i];
      const std::string at = "row " + std::to_string(i) + ": ";
      if (r.kind < row_issue || r.kind > row_sync) return at + "no such kind: " + std::to_string(r.kind);
      if (r.a < 0 || r.a >= (r.kind == row_issue ? count_ : 1 << 20)) return at + "no such op or event: " + std::to_string(r.a);
      const bool on_stream = r.kind == row_issue ? ops_[r.a].gpu : r.kind != row_sync;
      if (on_stream != (r.b >= 0) || r.b >= 1 << 10) return at + "no such stream: " + std::to_string(r.b);
      streams = std::max(streams, r.b + 1);
      if (r.kind != row_issue) events = std::max(events, r.a + 1);
    }
    program_.grow(static_cast<std::size_t>(streams), static_cast<std::size_t>(events));
    return "";
  }

  // One run. The table must have been prepared.
  void execute(const Row* rows, std::int64_t n) {
    for (const Row *r = rows, *end = rows + n; r != end; ++r) {
      const std::size_t a = static_cast<std::size_t>(r->a), b = static_cast<std::size_t>(r->b);
      switch (r->kind) {
        case row_issue: ops_[a].issue(program_, r->b < 0 ? cudaStream_t{} : program_.stream[b]); break;
        case row_record: DAGC_CUDA(cudaEventRecord(program_.event[a], program_.stream[b])); break;
        case row_wait: DAGC_CUDA(cudaStreamWaitEvent(program_.stream[b], program_.event[a], 0)); break;
        default: DAGC_CUDA(cudaEventSynchronize(program_.event[a])); break;
      }
    }
  }

  // Reset, one run, comparison with the reference: "" where good, the same text on every rank. Collective.
  std::string check(const Row* rows, std::int64_t n) {
    program_.reset();
    execute(rows, n);
    return verify();
  }

  std::string verify() {
    DAGC_CUDA(cudaGetLastError());
    DAGC_CUDA(cudaDeviceSynchronize());
    return first_wrong(program_.verify(), rank_, comm_);
  }

 private:
  const Op* ops_;
  std::int32_t count_;
  Program program_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
};

// ---- tables from a file ----------------------------------------------------------------------------------------------

// One traversal a line: `kind,a,b;kind,a,b;...`. Empty lines, and lines that start with #, are skipped.
inline std::vector<std::vector<Row>> read_tables(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(exit_bad_input, path + ": cannot open");
  std::vector<std::vector<Row>> tables;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<Row> rows;
    const char* at = line.c_str();
    while (*at) {
      std::int32_t values[3];
      for (int i = 0; i < 3; ++i) {
        char* end = nullptr;
        values[i] = static_cast<std::int32_t>(std::strtol(at, &end, 10));
        const bool good = end != at && (i < 2 ? *end == ',' : *end == ';' || *end == '\0' || *end == '\r');
        if (!good) fail(exit_bad_input, path + ":" + std::to_string(number) + ": not a row `kind,a,b`");
        at = *end && *end != '\r' ? end + 1 : end;
      }
      rows.push_back({values[0], values[1], values[2]});
      if (*at == '\r') break;
    }
    tables.push_back(std::move(rows));
  }
  return tables;
}

// ---- main program ----------------------------------------------------------------------------------------------------

// Times straight-line code and the same traversal as a table, in turn; medians and their ratio.
template <class Program>
void compare(Runner<Program>& runner, const std::vector<Row>& rows, void (*iteration)(Program&), bool carried,
             const MeasureOptions& timing, bool speak, JsonObject& record) {
  MeasureOptions once = timing;
  once.repeats = 1;
  std::vector<double> straight, table, ratio;
  const auto reset = [&] { if (carried) runner.program().reset(); };
  for (std::int64_t i = 0; i < timing.repeats; ++i) {
    const auto time = [&](bool as_table) {
      const auto run = [&] { as_table ? runner.execute(rows.data(), static_cast<std::int64_t>(rows.size())) : iteration(runner.program()); };
      return measure(run, reset, MPI_COMM_WORLD, once).seconds[0];
    };
    const bool first = i % 2 != 0;  // who goes first alternates
    const double one = time(first), other = time(!first);
    straight.push_back(first ? other : one);
    table.push_back(first ? one : other);
    ratio.push_back(table.back() / straight.back());
  }
  const Statistics s = statistics(straight), t = statistics(table), r = statistics(ratio);
  record.field("straight", to_json(s)).field("table", to_json(t)).field("ratio", to_json(r));
  if (!speak) return;
  char text[96];
  std::snprintf(text, sizeof text, "%.4f  (95%%: %.4f to %.4f)", r.median, r.median_low, r.median_high);
  print_table({{"straight-line", time_text(s.median)}, {"table", time_text(t.median)}, {"table / straight-line", text}});
}

template <class Program>
int runner_main(int argc, char** argv, Runner<Program>& runner, const std::vector<Row>& plan, void (*iteration)(Program&),
                bool carried, bool device_messages) {
  std::string data, tables_file, json;
  MeasureOptions timing;
  timing.seconds = 0;
  timing.repeats = 0;
  bool device_pointers = false, comparing = false;
  Options options("runner", "Executes traversals from tables; checks each, and times it where --seconds is given.");
  options.text("--data", "DIR", &data, "arrays of each rank, as `dagc setup` writes them").required();
  options.text("--tables", "FILE", &tables_file, "one traversal a line: kind,a,b;kind,a,b;... (the program's own)");
  options.number("--seconds", "S", &timing.seconds, "time each traversal, measurements of this length", 0, 3600);
  options.integer("--repeats", "N", &timing.repeats, "number of measurements (1; with --compare 20)", 1, 1000000);
  options.text("--json", "FILE", &json, "write the results; - is standard output");
  options.flag("--compare", &comparing, "time the straight-line code against its table");
  options.flag("--mpi-takes-device-pointers", &device_pointers, "believe that this MPI takes device pointers");
  options.parse(argc, argv);
  if (timing.repeats == 0) timing.repeats = comparing ? 20 : 1;

  Mpi mpi(&argc, &argv);
  check_ranks(data, mpi.rank(), mpi.ranks(), MPI_COMM_WORLD);
  take_gpu(mpi.rank(), MPI_COMM_WORLD);
  if (device_messages) require_device_pointers(device_pointers);
  runner.open(data, MPI_COMM_WORLD);

  const std::vector<std::vector<Row>> tables =
      tables_file.empty() ? std::vector<std::vector<Row>>{plan} : read_tables(tables_file);
  const bool speak = mpi.rank() == 0 && json != "-";
  int wrong = 0;
  std::string results;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const Row* rows = tables[i].data();
    const std::int64_t n = static_cast<std::int64_t>(tables[i].size());
    const std::string bad = runner.prepare(rows, n);
    if (!bad.empty()) fail(exit_bad_input, "traversal " + std::to_string(i) + ": " + bad);
    const std::string difference = runner.check(rows, n);
    JsonObject result;
    result.field("traversal", static_cast<std::int64_t>(i)).field("good", difference.empty());
    std::string said = difference.empty() ? "good" : "wrong: " + difference;
    if (!difference.empty()) {
      ++wrong;
      result.field("wrong", difference);
    } else if (timing.seconds > 0 && !comparing) {
      const Measurement m = measure([&] { runner.execute(rows, n); }, [&] { if (carried) runner.program().reset(); }, MPI_COMM_WORLD, timing);
      result.field("time", to_json(m));
      said += "  " + time_text(m.stats.median);
    }
    results += (results.empty() ? "" : ", ") + result.text();
    if (speak) std::printf("%zu: %s\n", i, said.c_str());
  }
  JsonObject record;
  record.field("environment", environment(MPI_COMM_WORLD)).raw("results", "[" + results + "]");
  if (comparing && !wrong) {
    if (timing.seconds <= 0) timing.seconds = 0.01;
    const std::string bad = runner.prepare(plan.data(), static_cast<std::int64_t>(plan.size()));
    if (!bad.empty()) fail(exit_bad_input, bad);
    compare(runner, plan, iteration, carried, timing, speak, record);
  }
  if (mpi.rank() == 0 && !json.empty()) write_json(json, record);
  return wrong ? exit_wrong_result : exit_good;
}

}  // namespace dagc
