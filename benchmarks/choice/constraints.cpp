// The comparisons of the constraints of the SpMV's variants, as an emitted program has them, one after the other; and the start
// and end of one thread. Nanoseconds, the least of nine rounds.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
struct Program {
  volatile int64_t n = 100000, nnz = 700000, cols = 100000;
  volatile double longest = 9, slots = 800000, diagonals = 7, memory = 1.4e11;
} p;

static int failed() {
  int found = 0;
  found += !(p.n * p.longest <= 10 * p.nnz && 8 * p.n * p.longest <= p.memory / 2);
  found += !(p.slots <= 4 * p.nnz + 100000 && 11 * p.slots <= p.memory / 2);
  found += !(0 < p.diagonals && p.diagonals < 1000 && p.n * p.diagonals <= 10 * p.nnz &&
             4 * p.n * p.diagonals <= p.memory / 2);
  found += !(7 * ((p.n + 2047) / 2048) * ((p.cols + 8191) / 8192) <= p.nnz && 40 * p.nnz <= p.memory / 2);
  return found;
}

template <class F>
double best(int calls, F f) {
  double least = 1e18;
  for (int r = 0; r < 9; ++r) {
    auto a = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) f();
    double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - a).count() / calls;
    if (ns < least) least = ns;
  }
  return least;
}

int main() {
  volatile int used = 0;
  std::printf("all constraints: %.1f ns\n", best(200000, [&] { used = used + failed(); }));
  std::printf("a thread: %.0f ns\n", best(500, [&] { std::thread([&] { used = used + failed(); }).join(); }));
}
