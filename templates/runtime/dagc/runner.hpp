// Executes any traversal of a program from a table, without compiling.
//
// A table is rows of three numbers (kind, a, b):
//   0, op, stream      issue an op (stream -1: a CPU op)
//   1, event, stream   record the event in the stream
//   2, event, stream   the stream waits for the event
//   3, event, -1       the CPU waits for the event
//   4, rows, stream    the next `rows` rows, up to a row of kind 5, are captured and launched as one CUDA graph on the stream
//   5, 0, -1           end of the captured rows
//   6, rows, stream    the next `rows` rows, up to a row of kind 5, are an iteration that the device repeats; no op precedes it
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dagc/audit.hpp"
#include "dagc/capture.hpp"
#include "dagc/check.hpp"
#include "dagc/device.hpp"
#include "dagc/fault.hpp"
#include "dagc/loop.hpp"
#include "dagc/measure.hpp"
#include "dagc/options.hpp"
#include "dagc/results.hpp"
#include "dagc/target.hpp"
#include "dagc/watchdog.hpp"

namespace dagc {

enum RowKind : std::int32_t { row_issue = 0, row_record = 1, row_wait = 2, row_sync = 3, row_begin = 4, row_end = 5, row_loop = 6 };

struct Row {
  std::int32_t kind, a, b;
};
static_assert(sizeof(Row) == 12, "rows are given as plain int32 triples");

namespace detail {
// Ends the start of a program that computes its features beside its first ops: tables may be captured before these run.
template <class Program>
auto settle(Program& p, int) -> decltype(p.settle()) {
  p.settle();
}
template <class Program>
void settle(Program&, long) {}
}  // namespace detail

// One op of the program: its function, its name, and its name with its kernel's, for messages.
template <class Program>
struct TableOp {
  void (*work)(Program&, cudaStream_t);
  const char* name;
  const char* text;
  bool gpu;
  bool sends;  // its stream has a part of messages

  void issue(Program& p, cudaStream_t stream) const {
    begin_op(text);
    work(p, stream);
    end_op();
  }
};

// A table that can be executed: its rows, and a graph for each capture region, in order, or a loop of all.
struct Prepared {
  std::vector<Row> rows;
  std::vector<CapturedGraph> graphs;
  std::unique_ptr<DeviceLoop> loop;
  std::vector<bool> sends;  // of each stream, whether it has a part of messages
  bool stale = false;       // its graphs use memory that was freed
};

template <class Program>
class Runner {
 public:
  using Op = TableOp<Program>;

  // How the dag is repeated, null where it is not or cannot be: the host's test after each run, and what ends a loop of
  // the device.
  struct Repetition {
    void (*test)(const Program&);
    void (*arm)(Program&, DeviceLoop&);
  };

  Runner(const Op* ops, std::int32_t count, Declared<Program> declared, Repetition repetition)
      : ops_(ops), count_(count), declared_(std::move(declared)), repetition_(repetition) {}

  Program& program() { return program_; }

  void open(const std::string& data, MPI_Comm comm) {
    comm_ = comm;
    DAGC_MPI(MPI_Comm_rank(comm, &rank_));
    program_.load(data, comm, 0, 0);
    detail::settle(program_, 0);
  }

  // Checks a table, creates the streams and events that it needs, and captures its regions. Null, with the reason in `wrong`,
  // if it cannot be executed. Collective: before the first capture the table is executed once without capture.
  std::unique_ptr<Prepared> prepare(const Row* rows, std::int64_t n, std::string* wrong) {
    std::unique_ptr<Prepared> out(new Prepared);
    out->rows.assign(rows, rows + n);
    *wrong = examine(out->rows);
    if (!wrong->empty()) return nullptr;
    out->sends.assign(program_.stream.size(), false);
    for (const Row& r : out->rows)
      if (r.kind == row_issue && ops_[r.a].sends) out->sends[static_cast<std::size_t>(r.b)] = true;
    program_.priorities.prefer(&program_.stream, out->sends);
    bool any = false;
    for (const Row& r : out->rows) any = any || r.kind == row_begin || r.kind == row_loop;
    if (any && !warm_) {  // the first use initialises libraries, which cannot be captured
      program_.reset();
      execute_plain(*out);
      DAGC_CUDA(cudaDeviceSynchronize());
      warm_ = true;
    }
    for (std::size_t i = 0; i < out->rows.size(); ++i) {
      const Row& r = out->rows[i];
      if (r.kind != row_begin && r.kind != row_loop) continue;
      const cudaStream_t origin = program_.stream[static_cast<std::size_t>(r.b)];
      const auto inside = [this, first = &out->rows[i + 1], count = r.a] {
        for (const Row* inner = first; inner != first + count; ++inner) step(*inner);
      };
      if (r.kind == row_loop) {
        out->loop = std::make_unique<DeviceLoop>();
        repetition_.arm(program_, *out->loop);
        out->loop->test_every(out->rows[i + 1 + static_cast<std::size_t>(r.a)].a);
        out->loop->capture(origin, inside);
      } else {
        out->graphs.emplace_back();
        out->graphs.back().capture(origin, inside);
      }
    }
    return out;
  }

  // `n` runs, each with its test.
  void run(const Prepared& table, std::int64_t n) {
    if (table.loop) {
      repeat(table, n, false);
      return;
    }
    for (; n > 0; --n) {
      execute(table);
      if (repetition_.test != nullptr) repetition_.test(program_);
    }
  }

  // On the device: at most `n` runs; with `stops`, to the end of the repetition.
  DeviceLoop::Ran repeat(const Prepared& table, std::int64_t n, bool stops) {
    program_.priorities.prefer(&program_.stream, table.sends);
    position_.store(0, std::memory_order_relaxed);
    const cudaStream_t origin = program_.stream[static_cast<std::size_t>(table.rows.front().b)];
    const DeviceLoop::Ran ran = table.loop->run(origin, n, stops, [](auto part) { part(); });
    position_.store(-1, std::memory_order_relaxed);
    return ran;
  }

  // One run.
  void execute(const Prepared& table) {
    if (table.loop) {
      repeat(table, 1, false);
      return;
    }
    program_.priorities.prefer(&program_.stream, table.sends);
    const CapturedGraph* graph = table.graphs.data();
    const Row* const start = table.rows.data();
    for (const Row *r = start, *end = start + table.rows.size(); r != end; ++r) {
      position_.store(r - start, std::memory_order_relaxed);
      if (r->kind == row_begin) {
        (graph++)->launch(program_.stream[static_cast<std::size_t>(r->b)]);
        r += r->a + 1;
      } else {
        step(*r);
      }
    }
    position_.store(-1, std::memory_order_relaxed);
  }

  // One run without capture.
  void execute_plain(const Prepared& table) {
    program_.priorities.prefer(&program_.stream, table.sends);
    for (const Row& r : table.rows) step(r);
  }

  // The current row, -1 if none is executed. Callable from another thread.
  std::int64_t position() const { return position_.load(std::memory_order_relaxed); }

  // Reset with poison 0 or 1, `runs` runs, comparison with the reference: "" if right, the same text on every rank.
  // Collective. Afterwards inputs have their loaded values again.
  std::string check(const Prepared& table, int poison, std::int64_t runs) {
    return results_.after(poison, runs, [&](std::int64_t n) { run(table, n); });
  }

  // For programs that change what the next run reads: stores the results of `runs` runs in which each op ends before the
  // next one begins, so that they do not depend on timing. Once. Collective.
  void keep(const Prepared& table, std::int64_t runs) {
    results_.keep(runs, [&](std::int64_t) {
      for (const Row& r : table.rows) {
        step(r);
        DAGC_CUDA(cudaDeviceSynchronize());
      }
    });
  }

  // Reset with poison 0 or 1, `runs` runs, comparison with what `keep` stored for as many: "" if right. Collective.
  std::string check_kept(const Prepared& table, int poison, std::int64_t runs) {
    return results_.after_like_kept(poison, runs, [&](std::int64_t n) { run(table, n); });
  }

  std::string verify() { return results_.verify(); }

  // One run without captures, op by op, each to its end: "" if every op changes only what its header declares and the
  // results are right, else the error. If an op fails, names it and ends the process. Collective.
  std::string audit(const Prepared& table) {
    program_.reset();
    Audit<Program> audit(program_, declared_);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Row& r = table.rows[i];
      position_.store(static_cast<std::int64_t>(i), std::memory_order_relaxed);
      const bool watched = r.kind == row_issue && declared_.kernel(r.a);
      if (watched) audit.before(r.a);
      step(r);
      if (r.kind != row_issue) continue;
      cudaError_t status = cudaGetLastError();
      begin_op(ops_[r.a].text);
      if (status == cudaSuccess) status = cudaDeviceSynchronize();
      end_op();
      if (status != cudaSuccess) fail(exit_run_failed, std::string(ops_[r.a].text) + " failed: " + cudaGetErrorString(status));
      if (watched) audit.after(r.a, ops_[r.a].name);
    }
    position_.store(-1, std::memory_order_relaxed);
    const std::string wrong = first_wrong(audit.wrong([&](std::int32_t op) { return ops_[op].name; }), rank_, comm_);
    const std::string result = verify();
    return wrong.empty() ? result : wrong;
  }

  // One run without captures, op by op: per row the times at which the CPU began and ended it, and at which the GPU
  // began and ended an op, in seconds from the start; NaN if there is none. `out`: 4 numbers a row. Collective.
  void trace(const Prepared& table, double* out) {
    using Clock = std::chrono::steady_clock;
    const std::size_t n = table.rows.size();
    std::vector<cudaEvent_t> marks(2 * n);
    for (cudaEvent_t& mark : marks) DAGC_CUDA(cudaEventCreateWithFlags(&mark, cudaEventDefault));
    execute_plain(table);
    DAGC_CUDA(cudaDeviceSynchronize());
    Clock::time_point base_time;
    const cudaEvent_t base = base_event(&base_time);
    DAGC_MPI(MPI_Barrier(comm_));
    const Clock::time_point start = Clock::now();
    const auto now = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    const auto on_gpu = [&](const Row& r) { return r.kind == row_issue && r.b >= 0; };
    for (std::size_t i = 0; i < n; ++i) {
      const Row& r = table.rows[i];
      cudaStream_t stream = on_gpu(r) ? program_.stream[static_cast<std::size_t>(r.b)] : cudaStream_t{};
      if (on_gpu(r)) DAGC_CUDA(cudaEventRecord(marks[2 * i], stream));
      position_.store(static_cast<std::int64_t>(i), std::memory_order_relaxed);
      out[4 * i] = now();
      step(r);
      out[4 * i + 1] = now();
      if (on_gpu(r)) DAGC_CUDA(cudaEventRecord(marks[2 * i + 1], stream));
    }
    position_.store(-1, std::memory_order_relaxed);
    DAGC_CUDA(cudaDeviceSynchronize());
    const double offset = std::chrono::duration<double>(base_time - start).count();
    for (std::size_t i = 0; i < n; ++i) {
      out[4 * i + 2] = out[4 * i + 3] = std::numeric_limits<double>::quiet_NaN();
      if (!on_gpu(table.rows[i])) continue;
      for (std::size_t k = 0; k < 2; ++k) {
        float milliseconds = 0;
        DAGC_CUDA(cudaEventElapsedTime(&milliseconds, base, marks[2 * i + k]));
        out[4 * i + 2 + k] = offset + static_cast<double>(milliseconds) * 1e-3;
      }
    }
    for (cudaEvent_t mark : marks) DAGC_CUDA(cudaEventDestroy(mark));
    DAGC_CUDA(cudaEventDestroy(base));
  }

 private:
  // An event, and the time on the CPU's clock when the GPU reached it: the middle of the shortest of a few round trips.
  cudaEvent_t base_event(std::chrono::steady_clock::time_point* when) {
    using Clock = std::chrono::steady_clock;
    cudaEvent_t best = nullptr, other = nullptr;
    for (cudaEvent_t* event : {&best, &other}) DAGC_CUDA(cudaEventCreateWithFlags(event, cudaEventDefault));
    Clock::duration shortest = Clock::duration::max();
    for (int i = 0; i < 10; ++i) {
      const Clock::time_point before = Clock::now();
      DAGC_CUDA(cudaEventRecord(other, program_.stream.empty() ? cudaStream_t{} : program_.stream[0]));
      DAGC_CUDA(cudaEventSynchronize(other));
      const Clock::duration taken = Clock::now() - before;
      if (taken >= shortest) continue;
      shortest = taken;
      *when = before + taken / 2;
      std::swap(best, other);
    }
    DAGC_CUDA(cudaEventDestroy(other));
    return best;
  }

  void step(const Row& r) {
    const std::size_t a = static_cast<std::size_t>(r.a), b = static_cast<std::size_t>(r.b);
    switch (r.kind) {
      case row_issue: ops_[a].issue(program_, r.b < 0 ? cudaStream_t{} : program_.stream[b]); break;
      case row_record: DAGC_CUDA(cudaEventRecord(program_.event[a], program_.stream[b])); break;
      case row_wait: DAGC_CUDA(cudaStreamWaitEvent(program_.stream[b], program_.event[a], 0)); break;
      case row_sync:
        begin_op("the wait of the CPU for an event");
        DAGC_CUDA(cudaEventSynchronize(program_.event[a]));
        end_op();
        break;
      default: break;  // the marks around a capture region
    }
  }

  // "" if the table can be executed; creates the streams and events that it needs.
  std::string examine(const std::vector<Row>& rows) {
    std::int32_t streams = 0, events = 0;
    std::int64_t inside = 0;  // rows left of a capture region
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& r = rows[i];
      const std::string at = "row " + std::to_string(i) + ": ";
      if (r.kind < row_issue || r.kind > row_loop) return at + "no such kind: " + std::to_string(r.kind);
      if (r.kind == row_loop && (i > 0 || repetition_.arm == nullptr)) return at + "a repetition that the device cannot begin here";
      if (r.kind == row_begin || r.kind == row_loop) {
        if (inside || r.a < 1 || r.b < 0 || r.b >= 1 << 10) return at + "a capture region that cannot begin here";
        if (i + static_cast<std::size_t>(r.a) + 1 >= rows.size()) return at + "a capture region without an end";
        inside = r.a + 1;
        streams = std::max(streams, r.b + 1);
        continue;
      }
      const bool last = inside == 1;
      if (inside > 0) --inside;
      if ((r.kind == row_end) != last) return at + "the end of a capture region is not where it should be";
      if (last) continue;
      if (r.a < 0 || r.a >= (r.kind == row_issue ? count_ : 1 << 20)) return at + "no such op or event: " + std::to_string(r.a);
      const bool on_stream = r.kind == row_issue ? ops_[r.a].gpu : r.kind != row_sync;
      if (on_stream != (r.b >= 0) || r.b >= 1 << 10) return at + "no such stream: " + std::to_string(r.b);
      if (inside > 0 && r.b < 0) return at + "the CPU cannot take part in a capture region";
      streams = std::max(streams, r.b + 1);
      if (r.kind != row_issue) events = std::max(events, r.a + 1);
    }
    program_.grow(static_cast<std::size_t>(streams), static_cast<std::size_t>(events));
    return "";
  }

  const Op* ops_;
  std::int32_t count_;
  Declared<Program> declared_;
  const Repetition repetition_;
  Program program_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  Results<Program> results_{program_};
  bool warm_ = false;
  std::atomic<std::int64_t> position_{-1};
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

// The compiled program of a runner.
template <class Program>
struct Compiled {
  const std::vector<Row>& plan;
  void (*iteration)(Program&);               // the plan as straight-line code
  void (*capture)(Program&);                 // creates its graphs; null: it has none
  std::int64_t (*longest)(const Program&);   // MeasureOptions::max_iterations
  bool carried, device_messages, threads;    // resets before measurements; MPI gets device pointers, is called by streams
};

// Times straight-line code and the same traversal as a table alternately; medians and their ratio.
template <class Program>
void compare(Runner<Program>& runner, const Prepared& rows, const Compiled<Program>& compiled,
             const MeasureOptions& timing, bool speak, JsonObject& record) {
  MeasureOptions once = timing;
  once.repeats = 1;
  std::vector<double> straight, table, ratio;
  const auto reset = [&] { if (compiled.carried) runner.program().reset(); };
  for (std::int64_t i = 0; i < timing.repeats; ++i) {
    const auto time = [&](bool as_table) {
      const auto run = [&](std::int64_t n) {
        for (; n > 0; --n) as_table ? runner.execute(rows) : compiled.iteration(runner.program());
      };
      return measure(run, reset, MPI_COMM_WORLD, once).seconds[0];
    };
    const bool first = i % 2 != 0;  // the order alternates
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
int runner_main(int argc, char** argv, Runner<Program>& runner, const Compiled<Program>& compiled) {
  std::string data, tables_file, json;
  MeasureOptions timing;
  timing.seconds = 0;
  timing.repeats = 0;
  double hang = 20;
  bool device_pointers = false, comparing = false, auditing = false, quiet = false;
  Options options("runner", "Executes traversals from tables; checks each, and times it where --seconds is given.");
  options.text("--data", "DIR", &data, "arrays of each rank, written by `dagc setup`").required();
  options.text("--tables", "FILE", &tables_file, "one traversal a line: kind,a,b;kind,a,b;... (the program's own)");
  options.number("--seconds", "S", &timing.seconds, "time each traversal, measurements of this length", 0, 3600);
  options.integer("--repeats", "N", &timing.repeats, "number of measurements (1; with --compare 20)", 1, 1000000);
  options.text("--json", "FILE", &json, "write the results; - is standard output");
  options.number("--watchdog", "S", &hang, "seconds after which an iteration or audit counts as hung (20); 0: never", 0, 1e6);
  options.flag("--compare", &comparing, "time the straight-line code against its table");
  options.flag("--quiet", &quiet, "print no results");
  options.flag("--audit", &auditing, "run each traversal op by op, and check what each op changes");
  options.flag("--mpi-takes-device-pointers", &device_pointers, "assert that this MPI accepts device pointers");
  options.parse(argc, argv);
  keep_stdout_for(json);
  if (timing.repeats == 0) timing.repeats = comparing ? 20 : 1;

  Mpi mpi(&argc, &argv, compiled.threads);
  check_ranks(data, mpi.rank(), mpi.ranks(), MPI_COMM_WORLD);
  take_gpu(mpi.rank(), MPI_COMM_WORLD);
  if (compiled.device_messages) require_device_pointers(device_pointers);
  runner.open(data, MPI_COMM_WORLD);
  timing.max_iterations = compiled.longest(runner.program());

  const std::vector<std::vector<Row>> tables =
      tables_file.empty() ? std::vector<std::vector<Row>>{compiled.plan} : read_tables(tables_file);
  const bool speak = mpi.rank() == 0 && !quiet && json != "-";
  Watchdog watchdog(mpi.rank(), hang);
  int wrong = 0;
  std::string results;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    std::string bad;
    const auto table = runner.prepare(tables[i].data(), static_cast<std::int64_t>(tables[i].size()), &bad);
    if (!table) fail(exit_bad_input, "traversal " + std::to_string(i) + ": " + bad);
    std::string difference;
    watchdog.watched([&] {
      difference = auditing ? runner.audit(*table) : runner.check(*table, 0, 1);
      if (difference.empty() && !auditing) difference = runner.check(*table, 1, 1);
    });
    JsonObject result;
    result.field("traversal", static_cast<std::int64_t>(i)).field("good", difference.empty());
    std::string said = difference.empty() ? "good" : "wrong: " + difference;
    if (!difference.empty()) {
      ++wrong;
      result.field("wrong", difference);
    } else if (timing.seconds > 0 && !comparing) {
      const auto reset = [&] { if (compiled.carried) runner.program().reset(); };
      const Measurement m = measure([&](std::int64_t n) { watchdog.watched([&] { runner.run(*table, n); }); }, reset, MPI_COMM_WORLD, timing);
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
    std::string bad;
    const auto table = runner.prepare(compiled.plan.data(), static_cast<std::int64_t>(compiled.plan.size()), &bad);
    if (!table) fail(exit_bad_input, bad);
    if (compiled.capture != nullptr) compiled.capture(runner.program());
    compare(runner, *table, compiled, timing, speak, record);
  }
  if (mpi.rank() == 0 && !json.empty()) write_json(json, record);
  return wrong ? exit_wrong_result : exit_good;
}

}  // namespace dagc
