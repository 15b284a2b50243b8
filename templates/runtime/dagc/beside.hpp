// Features, choice and conversions beside the runs of a program: it starts with the defaults, and switches when what was chosen is
// ready and the runs that are left pay for it.
//
//   dagc::Beside<Program> beside(p);
//   beside.begin();                                         // before the first run
//   while (...) { run(p); ++runs; beside.after(runs, left); }   // collective; left: expected
//   beside.stop();                                          // when nobody waits for the result any more: it may wait
//
// Of the program it uses: compute_late_features(), choose(), sites, members(site), payoff(site, answer), least_runs,
// needs(which), prepare(which, stream), make_graphs().
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/choice.hpp"
#include "dagc/target.hpp"

namespace dagc {

// The payoff of an answer at the inputs where it is the best, in calls of the default: `gain` of each call, `cost` of its
// conversion.
struct Payoff {
  double gain, cost;
};

// Work on a thread and a stream of its own, on the GPU that is current where it is started.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    wait();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (staging_.buffer != nullptr) cudaFreeHost(staging_.buffer);
    if (staging_.scratch != nullptr) cudaFree(staging_.scratch);
  }

  // The thread makes its stream itself, so that the program goes on.
  template <class Work>
  void start(Work work) {
    int device = 0;
    DAGC_CUDA(cudaGetDevice(&device));
    done_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this, device, work] {
#ifdef DAGC_LIBRARY
      try {
        on(device, work);
      } catch (const Failure& failure) {
        wrong_ = failure.text;
      } catch (const std::exception& error) {  // of the standard library: memory
        wrong_ = std::string("failed: ") + error.what();
      }
#else
      on(device, work);
#endif
      done_.store(true, std::memory_order_release);
    });
  }

  bool done() const { return done_.load(std::memory_order_acquire); }

  // Until the work is done: "" or why it failed.
  std::string wait() {
    if (thread_.joinable()) thread_.join();
    return std::exchange(wrong_, "");
  }

 private:
  static constexpr std::size_t kStaging = 1 << 20;

  // On the thread: with a stream, and page-locked memory through which it copies to the host.
  template <class Work>
  void on(int device, Work work) {
    DAGC_CUDA(cudaSetDevice(device));
    if (stream_ == nullptr) {
      DAGC_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
      DAGC_CUDA(cudaMallocHost(&staging_.buffer, kStaging));
      DAGC_CUDA(cudaMalloc(&staging_.scratch, sizeof *staging_.scratch));
      staging_.bytes = kStaging;
      staging_.stream = stream_;
    }
    staging() = &staging_;
    work(stream_);
  }

  Staging staging_;
  std::thread thread_;
  std::atomic<bool> done_{false};
  std::string wrong_;
  cudaStream_t stream_ = nullptr;
};

template <class Program>
class Beside {
 public:
  explicit Beside(Program& program) : p_(program) {}

  // Before the first run. The arrays that features read must not change from now on.
  void begin() {
    if (state_ != State::before) return;
    state_ = State::waiting;
    began_ = seconds_now();
  }

  // After a run. `runs`: how many there were; `left`: how many more are expected. Collective, with equal numbers.
  void after(std::int64_t runs, std::int64_t left) {
    if (state_ == State::before || state_ == State::settled) return;
    if (state_ == State::waiting && static_cast<double>(left) >= p_.least_runs && seconds_now() - began_ >= kPatience) {
      state_ = State::features;
      worker_.start([this](cudaStream_t) { p_.compute_late_features(); });
    }
    if (!ready(runs)) return;
    const std::string wrong = worker_.wait();
    if (!everywhere(wrong.empty())) return stay(wrong.empty() ? "another rank failed" : wrong);
    if (state_ == State::features)
      choose(left);
    else
      take(runs, left);
  }

  bool settled() const { return state_ == State::settled; }

  // Waits for what is under way; nothing is switched any more.
  void stop() {
    const std::string wrong = worker_.wait();
    if (state_ == State::waiting) stay("too few runs for a choice to pay");
    if (state_ == State::features || state_ == State::conversion) stay(wrong.empty() ? "not ready before the last run" : wrong);
  }

  // How many runs there were with the defaults; -1: all of them.
  std::int64_t switched_after() const { return switched_after_; }

  // "second: ell after 12 runs, 0.0031 s", or why there is none.
  const std::string& text() const { return text_; }

 private:
  enum class State { before, waiting, features, conversion, settled };

  // Seconds of runs before a thread is started, which takes about a fiftieth of this.
  static constexpr double kPatience = 0.0025;

  // On every rank. Where there are several, not after every run, since it takes an allreduce.
  bool ready(std::int64_t runs) {
    if (p_.ranks == 1) return worker_.done();
    return ((runs & (runs - 1)) == 0 || runs % 16 == 0) && everywhere(worker_.done());
  }

  bool everywhere(bool mine) const {
    int all = mine;
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, p_.comm));
    return all != 0;
  }

  void settle(const std::string& what) {
    state_ = State::settled;
    text_ = what;
  }

  // With the defaults.
  void stay(const std::string& why) {
    for (Site& site : p_.sites) site.answer = 0;
    settle(why);
  }

  std::vector<std::int64_t> values() {
    std::vector<std::int64_t> out;
    for (int site = 0; site < Program::chosen_sites; ++site)
      for (const std::int64_t* member : p_.members(site)) out.push_back(*member);
    return out;
  }

  void set(const std::vector<std::int64_t>& to) {
    auto next = to.begin();
    for (int site = 0; site < Program::chosen_sites; ++site)
      for (std::int64_t* member : p_.members(site)) *member = *next++;
  }

  void choose(std::int64_t left) {
    const std::vector<std::int64_t> defaults = values();
    p_.choose();
    std::vector<std::int64_t> chosen = values();
    std::size_t at = 0;
    bool other = false, pays = false;
    for (int site = 0; site < Program::chosen_sites; ++site) {
      const int answer = p_.sites[site].answer;
      const Payoff payoff = p_.payoff(site, answer);
      const bool pays_off = answer != 0 && payoff.gain * static_cast<double>(left) > payoff.cost;
      other = other || answer != 0;
      pays = pays || pays_off;
      for (std::size_t members = p_.members(site).size(); members > 0; --members, ++at)
        if (!pays_off) chosen[at] = defaults[at];
      if (!pays_off) p_.sites[site].answer = 0;
    }
    set(chosen);
    std::vector<int> wanted;
    for (int which = 0; which < Program::preparations; ++which)
      if (p_.needs(which)) wanted.push_back(which);
    set(defaults);
    if (everywhere(!pays)) return stay(other ? "the runs that are left do not pay for it" : "the defaults are chosen");
    chosen_ = std::move(chosen);
    state_ = State::conversion;
    worker_.start([this, wanted](cudaStream_t stream) {
      for (const int which : wanted) p_.prepare(which, stream);
    });
  }

  void take(std::int64_t runs, std::int64_t left) {
    if (left <= 0) return stay("ready after the last run");
    set(chosen_);
    p_.make_graphs();
    switched_after_ = runs;
    std::string what;
    for (int site = 0; site < Program::chosen_sites; ++site)
      what += (what.empty() ? "" : ", ") + std::string(p_.sites[site].op) + ": " + p_.sites[site].text(p_.sites[site].answer);
    char when[64];
    std::snprintf(when, sizeof when, " after %lld run%s, %.3g s", static_cast<long long>(runs), runs == 1 ? "" : "s", seconds_now() - began_);
    settle(what + when);
  }

  Program& p_;
  State state_ = State::before;
  Worker worker_;
  std::vector<std::int64_t> chosen_;
  std::int64_t switched_after_ = -1;
  double began_ = 0;
  std::string text_ = "not begun";
};

}  // namespace dagc
