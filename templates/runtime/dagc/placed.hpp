// Places the ops of a program together when it starts: by the expected seconds of their implementations, and of the
// transfers between the host and the GPUs of a rank that a placement needs.
//
//   dagc::Placing<2> placing{comm, transfers};       // seconds of copies from each side to each
//   placing.open(site, n, sides, seconds, reason);   // ops in the order of their numbers
//   placing.fixed("c", dagc::placement::on_host);
//   placing.value(bytes, 0, {1}, false);             // what op 0 writes, and op 1 reads
//   placing.solve();
//   placing.answer(0);                               // the implementation of op 0, the same on every rank
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/choice.hpp"
#include "dagc/placement.hpp"

namespace dagc {

// The time of a copy: seconds, and bytes per second.
struct TransferTime {
  double latency, bandwidth;

  double seconds(std::size_t bytes) const { return latency + static_cast<double>(bytes) / bandwidth; }
};

template <int K>
class Placing {
 public:
  // `transfers[a][b]`: from side a to side b, which the caller keeps.
  Placing(MPI_Comm comm, const TransferTime (&transfers)[K][K]) : comm_(comm), transfers_(transfers) {}

  // The next op runs on one side only.
  void fixed(const char* name, placement::Side side) { add(name, nullptr, side, 0, 0); }

  // The next op has `n` implementations, on `sides`, with expected `seconds`; this takes the maximum over the ranks,
  // infinite for an implementation that is not allowed, very long for one that failed at inputs like this one when it was
  // tuned. If a chooser has a `reason` for the default, only the first allowed implementation is kept, or 0 if none is
  // allowed. Collective.
  void open(const Site& site, int n, const placement::Side* sides, double* seconds, int reason) {
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, seconds, n, MPI_DOUBLE, MPI_MAX, comm_));
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &reason, 1, MPI_INT, MPI_MAX, comm_));
    int best[K];
    std::fill_n(best, K, -1);
    for (int i = 0; i < n; ++i)
      if (seconds[i] < placement::never && (best[sides[i]] < 0 || seconds[i] < seconds[best[sides[i]]])) best[sides[i]] = i;
    const bool by_time = reason == 0 || reason == avoided;
    if (by_time && std::all_of(best, best + K, [](int i) { return i < 0; })) reason = constraint;
    if (!by_time || reason == constraint) {
      const int allowed = static_cast<int>(std::find_if(seconds, seconds + n, [](double s) { return s < placement::never; }) - seconds);
      const int first = allowed < n ? allowed : 0;
      add(site.op, &site, sides[first], allowed < n ? seconds[first] : 0, first);
    } else {
      add(site.op, &site, placement::on_host, 0, 0);
      std::copy_n(best, K, ops_.back().answer);
      for (int side = 0; side < K; ++side)
        problem_.ops.back().seconds[side] = best[side] < 0 ? placement::never : seconds[best[side]];
    }
    ops_.back().reason = reason;
  }

  // A value that op `producer` (or `placement::setup`, on the host) writes and the ops `readers` read. Collective.
  void value(std::size_t bytes, int producer, std::vector<int> readers, bool ends_on_host) {
    unsigned long long most = bytes;
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UNSIGNED_LONG_LONG, MPI_MAX, comm_));
    readers_.push_back(std::move(readers));
    const placement::Sides host = placement::only(placement::on_host);
    problem_.values.push_back({producer, nullptr, 0, {}, host, ends_on_host ? host : 0u});
    for (int from = 0; from < K; ++from)
      for (int to = 0; to < K; ++to)
        problem_.values.back().moves[from][to] = from == to ? 0 : transfers_[from][to].seconds(most);
  }

  void solve() {
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      problem_.values[i].readers = readers_[i].data();
      problem_.values[i].n_readers = static_cast<int>(readers_[i].size());
    }
    seconds_ = placement::place(problem_, &sides_).seconds;
  }

  int answer(int op) const { return ops_[static_cast<std::size_t>(op)].answer[sides_[static_cast<std::size_t>(op)]]; }
  int reason(int op) const { return ops_[static_cast<std::size_t>(op)].reason; }

  // Expected seconds of the program.
  double seconds() const { return seconds_; }

  // "a gpu.naive 12 us, b cpu.blas 30 us, transfers 5 us: 47 us expected (GPU only 60 us, CPU only 80 us)".
  std::string text() const {
    std::string out;
    double ops = 0;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const double took = problem_.ops[i].seconds[sides_[i]];
      const std::string how = ops_[i].site != nullptr ? ops_[i].site->text(answer(static_cast<int>(i))) : word(sides_[i], "cpu", "gpu");
      out += std::string(ops_[i].name) + " " + how + (ops_[i].site != nullptr ? " " + micro(took) : "") + ", ";
      ops += took;
    }
    out += "transfers " + micro(std::max(0.0, seconds_ - ops)) + ": " + micro(seconds_) + " expected";
    out += " (";
    for (int side = 1; side < K; ++side) out += word(placement::gpu(side - 1), "", "GPU") + " only " + micro(only(placement::gpu(side - 1))) + ", ";
    return out + "CPU only " + micro(only(placement::on_host)) + ")";
  }

 private:
  struct Op {
    const char* name;
    const Site* site;
    int answer[K], reason;
  };

  // One answer, on one side.
  void add(const char* name, const Site* site, placement::Side side, double seconds, int answer) {
    ops_.push_back({name, site, {}, 0});
    std::fill_n(ops_.back().answer, K, answer);
    problem_.ops.emplace_back();
    std::fill_n(problem_.ops.back().seconds, K, placement::never);
    problem_.ops.back().seconds[side] = seconds;
  }

  static std::string word(placement::Side side, const char* host, const char* gpu) {
    return side == placement::on_host ? host : gpu + (side == placement::on_device ? std::string() : std::to_string(side - 1));
  }

  // Seconds if all ops that can run on one side do so, and others where they are fastest.
  double only(placement::Side side) const {
    std::vector<placement::Side> sides;
    for (const placement::Op<K>& op : problem_.ops)
      sides.push_back(op.seconds[side] < placement::never ? side : static_cast<placement::Side>(std::min_element(op.seconds, op.seconds + K) - op.seconds));
    return placement::cost(problem_, sides.data());
  }

  static std::string micro(double seconds) {
    char text[40];
    std::snprintf(text, sizeof text, "%.4g us", seconds * 1e6);
    return text;
  }

  MPI_Comm comm_;
  const TransferTime (&transfers_)[K][K];
  std::vector<Op> ops_;
  placement::Problem<K> problem_;
  std::vector<std::vector<int>> readers_;
  std::vector<placement::Side> sides_;
  double seconds_ = 0;
};

}  // namespace dagc
