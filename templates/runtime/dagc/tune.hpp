// Times one op at a time, under the current launch parameters, and checks that all give the same results.
//
//   dagc::Kept kept;                        // what one op writes
//   kept.before(p, written);                // as it is before the op runs
//   issue(p, stream);  kept.after(p, written);                         // the results that others are compared with
//   kept.restore(p, written); issue(p, stream); kept.difference(p, written, 1e-3);   // "" if they agree
//   dagc::time_op([&] { issue(p, stream); }, stream, options, times);
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/runner_kernels.hpp"
#include "dagc/store.hpp"
#include "dagc/target.hpp"

namespace dagc {

namespace detail {

#if DAGC_TARGET_CUDA

template <class T>
std::string device_difference(const T* got, const T* want, std::int64_t n, const Tolerance& tolerance) {
  unsigned long long* most = nullptr;
  DAGC_CUDA(cudaMalloc(&most, 2 * sizeof *most));
  DAGC_CUDA(cudaMemset(most, 0, 2 * sizeof *most));
  issue_largest(got, want, n, most);
  DAGC_CUDA(cudaGetLastError());
  double found[2];
  DAGC_CUDA(cudaMemcpy(found, most, sizeof found, cudaMemcpyDeviceToHost));
  DAGC_CUDA(cudaFree(most));
  const double most_allowed = tolerance.atol + tolerance.rtol * found[1];
  if (std::isfinite(found[0]) && found[0] <= most_allowed) return "";
  char text[120];
  std::snprintf(text, sizeof text, "largest difference %.3g, allowed %.3g", found[0], most_allowed);
  return text;
}

#else

// On the host target all memory is the host's. Values that were undefined before and still are count as equal.
template <class T>
std::string device_difference(const T* got, const T* want, std::int64_t n, const Tolerance& tolerance) {
  return difference(got, want, n, tolerance);
}

#endif

}  // namespace detail

// Copies of what an op writes, in the order in which `written` names the arrays: `written(p, f)` calls f for each.
class Kept {
 public:
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { release(); }

  template <class Program, class Written>
  void before(Program& p, Written written) {
    release();
    written(p, [&](auto& a) { before_.push_back(copy_of(a.data, a.bytes())); });
  }

  template <class Program, class Written>
  void after(Program& p, Written written) {
    written(p, [&](auto& a) { after_.push_back(copy_of(a.data, a.bytes())); });
  }

  template <class Program, class Written>
  void restore(Program& p, Written written) {
    std::size_t i = 0;
    written(p, [&](auto& a) { DAGC_CUDA(cudaMemcpy(a.data, before_[i++], a.bytes(), cudaMemcpyDefault)); });
    DAGC_CUDA(cudaDeviceSynchronize());
  }

  // "" if what the op wrote agrees with `after`, else the difference.
  template <class Program, class Written>
  std::string difference(Program& p, Written written, const Tolerance& tolerance) {
    std::size_t i = 0;
    std::string wrong;
    written(p, [&](auto& a) {
      using T = std::remove_reference_t<decltype(*a.data)>;
      const T* want = static_cast<const T*>(after_[i++]);
      const bool compared = std::find(differing_.begin(), differing_.end(), &a) == differing_.end();
      if (compared && wrong.empty()) wrong = detail::device_difference<T>(a.data, want, a.size, tolerance);
    });
    return wrong;
  }

  // The launches are compared by what they write into this array, so it may differ.
  void may_differ(const void* array) { differing_.push_back(array); }

 private:
  static void* copy_of(const void* data, std::size_t bytes) {
    void* copy = nullptr;
    DAGC_CUDA(cudaMalloc(&copy, bytes ? bytes : 1));
    if (bytes) DAGC_CUDA(cudaMemcpy(copy, data, bytes, cudaMemcpyDefault));
    DAGC_CUDA(cudaDeviceSynchronize());
    return copy;
  }

  void release() {
    for (std::vector<void*>* all : {&before_, &after_}) {
      for (void* copy : *all) cudaFree(copy);
      all->clear();
    }
  }

  std::vector<void*> before_, after_;
  std::vector<const void*> differing_;
};

// Limits of timing an op.
struct TimeOptions {
  double relative = 0.01;        // until the median's 95 % interval is within this share of the median
  double seconds = 0.25;         // and no longer than this, launches and flushes together
  std::int32_t fewest = 5, most = 30;
  std::int64_t flush = 0;        // bytes that are written before each launch, so that the L2 cache holds none of the data
};

// A 95 % interval of the median by ranks (binomial; no distribution is assumed), as ranks from 0. Fewer than 6 values:
// smallest and largest.
inline void median_ranks(std::size_t n, std::size_t* low, std::size_t* high) {
  const double k = std::floor((static_cast<double>(n) - 1.96 * std::sqrt(static_cast<double>(n))) / 2);
  *low = k > 0 ? static_cast<std::size_t>(k) : 0;
  *high = n - 1 - *low;
}

// How many launches follow each other between two events, if one takes `seconds`. If the GPU is idle, the events also
// measure the launch latency, a few microseconds that vary by half; those around a series of launches, as in a program,
// do not. A launch after a flush waits in the queue, and is measured alone.
inline std::size_t in_a_row(double seconds, const TimeOptions& options) {
  constexpr double least = 100e-6, most = 32;
  if (options.flush || seconds >= least) return 1;
  return static_cast<std::size_t>(std::min(most, std::ceil(least / std::max(seconds, 1e-6))));
}

struct Nothing {
  void operator()() const {}
};

// Seconds of a launch, for each measurement in order. Event to event, on one stream, without work beside it; an
// op of the CPU (`gpu` false) by the clock of the host, each after `before`, which is not timed.
template <class Issue, class Before = Nothing>
void time_op(Issue issue, cudaStream_t stream, const TimeOptions& options, std::vector<double>* times, bool gpu = true,
             Before before = {}) {
  using Clock = std::chrono::steady_clock;
  static void* scratch = nullptr;
  static std::int64_t room = 0;
  if (options.flush > room) {
    if (scratch) DAGC_CUDA(cudaFree(scratch));
    DAGC_CUDA(cudaMalloc(&scratch, static_cast<std::size_t>(options.flush)));
    room = options.flush;
  }
  const std::size_t batch = static_cast<std::size_t>(std::max(options.fewest, 1));
  std::vector<cudaEvent_t> marks(2 * batch);
  for (cudaEvent_t& mark : marks) DAGC_CUDA(cudaEventCreateWithFlags(&mark, cudaEventDefault));
  const Clock::time_point start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  times->clear();
  std::size_t now = 1;  // the first alone gives the number of launches that fit into the time
  std::size_t row = 1;
  while (true) {
    for (std::size_t i = 0; i < now; ++i) {
      if (options.flush) DAGC_CUDA(cudaMemsetAsync(scratch, 0, static_cast<std::size_t>(options.flush), stream));
      if (!gpu) {
        before();
        DAGC_CUDA(cudaStreamSynchronize(stream));
        const Clock::time_point begin = Clock::now();
        issue();
        times->push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        continue;
      }
      DAGC_CUDA(cudaEventRecord(marks[2 * i], stream));
      for (std::size_t launch = 0; launch < row; ++launch) issue();
      DAGC_CUDA(cudaEventRecord(marks[2 * i + 1], stream));
    }
    DAGC_CUDA(cudaStreamSynchronize(stream));
    for (std::size_t i = 0; i < now && gpu; ++i) {
      float milliseconds = 0;
      DAGC_CUDA(cudaEventElapsedTime(&milliseconds, marks[2 * i], marks[2 * i + 1]));
      times->push_back(static_cast<double>(milliseconds) * 1e-3 / static_cast<double>(row));
    }
    if (gpu && times->size() == 1 && row == 1 && (row = in_a_row(times->front(), options)) > 1) {
      times->clear();  // it was no row
      continue;
    }
    const std::size_t n = times->size(), most = static_cast<std::size_t>(std::max(options.most, 1));
    const double each = spent() / static_cast<double>(n), left = options.seconds - spent();
    // A thread of OpenMP that is woken up on a core in use waits there for milliseconds: the first launch says little.
    const bool few = !gpu && n < batch && spent() < 4 * options.seconds;
    if (n >= most || (left < each && !few)) break;
    if (n >= batch) {
      std::vector<double> sorted = *times;
      std::sort(sorted.begin(), sorted.end());
      std::size_t low = 0, high = 0;
      median_ranks(n, &low, &high);
      const double median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
      if (sorted[high] - sorted[low] <= 2 * options.relative * median) break;
    }
    now = std::min({batch, most - n, static_cast<std::size_t>(std::max(0.0, left / each))});
    if (n < batch) now = std::min(now, batch - n);
    now = std::max<std::size_t>(now, 1);
  }
  for (cudaEvent_t mark : marks) DAGC_CUDA(cudaEventDestroy(mark));
}

}  // namespace dagc
