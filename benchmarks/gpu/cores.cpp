// How evenly OpenMP runs on this machine, by the number of threads: a parallel loop of 400 us of work on one core, and one of
// 10 us, 400 times each. Where something else runs on the cores, loops of all threads wait for it, for milliseconds. Then the
// loop of 10 us 60 times, each after 10 ms without work, when its threads sleep: "wake".
//
//   g++ -O2 -fopenmp -o cores benchmarks/gpu/cores.cpp && ./cores        # the last line: the threads with the least p90
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

// About a nanosecond each.
static double work(long from, long to) {
  double x = 1;
  for (long i = from; i < to; ++i) x = x * 0.999999 + 1e-9;
  return x;
}

static std::vector<double> loops(int threads, long total, int rounds = 400, int pause_ms = 0) {
  omp_set_num_threads(threads);
  std::vector<double> us;
  double sum = 0;
  for (int round = 0; round < rounds; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    const auto begin = Clock::now();
#pragma omp parallel reduction(+ : sum)
    {
      const long part = total / omp_get_num_threads(), at = part * omp_get_thread_num();
      sum += work(at, at + part);
    }
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  if (sum == 42) std::puts("");  // the work is not left out
  std::sort(us.begin(), us.end());
  return us;
}

int main() {
  const int all = omp_get_num_procs();
  int best = all;
  double least = 1e30;
  std::printf("threads work_us median p90 p99 max\n");
  for (int threads : {all, all - 1, all - 2, all * 3 / 4, all / 2}) {
    if (threads < 1) continue;
    double p90 = 0;
    for (long total : {400'000L, 10'000L}) {
      const std::vector<double> us = loops(threads, total);
      std::printf("%d %ld %.1f %.1f %.1f %.1f\n", threads, total / 1000, us[200], us[360], us[396], us[399]);
      p90 += us[360];
    }
    const std::vector<double> wake = loops(threads, 10'000, 60, 10);
    std::printf("%d wake %.1f %.1f %.1f %.1f\n", threads, wake[30], wake[54], wake[58], wake[59]);
    if (p90 < 0.9 * least) {
      least = p90;
      best = threads;
    }
  }
  std::printf("%d\n", best);
}
