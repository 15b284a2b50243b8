// What the host target costs. Not a test: build with -O2 and read.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "check.hpp"
#include "dagc/target.hpp"

namespace {

__global__ void nothing() {}
__global__ void add(float* y, const float* a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a[i];
}
__global__ void barriers(int n) {
  for (int i = 0; i < n; ++i) __syncthreads();
}
__global__ void shuffles(float* out, int n) {
  float v = threadIdx.x;
  for (int i = 0; i < n; ++i) v += __shfl_xor_sync(~0u, v, 1);
  if (v < 0) out[0] = v;
}

// Nanoseconds for each of `count` things that `work` does: the median of 11 runs, and the least.
template <class F>
void report(const char* what, double count, F work) {
  std::vector<double> times;
  work();
  for (int i = 0; i < 11; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-64s %10.1f ns (least %.1f)\n", what, times[5], times[0]);
}

}  // namespace

int main() {
  cudaStream_t a, b;
  GOOD(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  GOOD(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  cudaEvent_t e;
  GOOD(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  const int n = 1 << 18;
  float *x, *y;
  GOOD(cudaMalloc(&x, n * sizeof *x));
  GOOD(cudaMalloc(&y, n * sizeof *y));
  std::fill(x, x + n, 1.0f);
  std::fill(y, y + n, 1.0f);

  report("launch, many before one synchronise", 1000, [&] {
    for (int i = 0; i < 1000; ++i) dagc::launch(nothing, 1, 1, 0, a);
    GOOD(cudaStreamSynchronize(a));
  });
  report("launch and synchronise the stream", 200, [&] {
    for (int i = 0; i < 200; ++i) {
      dagc::launch(nothing, 1, 1, 0, a);
      GOOD(cudaStreamSynchronize(a));
    }
  });
  report("launch, record and synchronise the event", 200, [&] {
    for (int i = 0; i < 200; ++i) {
      dagc::launch(nothing, 1, 1, 0, a);
      GOOD(cudaEventRecord(e, a));
      GOOD(cudaEventSynchronize(e));
    }
  });
  report("record and synchronise, the event already reached", 200, [&] {
    for (int i = 0; i < 200; ++i) GOOD(cudaEventSynchronize(e));
  });
  report("hand over to another stream and back (two records, two waits)", 200, [&] {
    for (int i = 0; i < 200; ++i) {
      GOOD(cudaEventRecord(e, a));
      GOOD(cudaStreamWaitEvent(b, e, 0));
      GOOD(cudaEventRecord(e, b));
      GOOD(cudaStreamWaitEvent(a, e, 0));
    }
    GOOD(cudaStreamSynchronize(a));
  });
  report("thread of a kernel y[i] += a[i], blocks of 256", n, [&] {
    dagc::launch(add, n / 256, 256, 0, a, y, x, n);
    GOOD(cudaStreamSynchronize(a));
  });
  report("  the same as a plain loop", n, [&] {
    for (int i = 0; i < n; ++i) y[i] += x[i];
    __asm__ volatile("" ::: "memory");
  });
  for (const int block : {32, 256, 1024}) {
    char what[80];
    std::snprintf(what, sizeof what, "__syncthreads, per thread, blocks of %d", block);
    report(what, 100.0 * block, [&] {
      dagc::launch(barriers, 1, block, 0, a, 100);
      GOOD(cudaStreamSynchronize(a));
    });
  }
  report("__shfl_xor_sync, per thread, blocks of 256", 100.0 * 256, [&] {
    dagc::launch(shuffles, 1, 256, 0, a, y, 100);
    GOOD(cudaStreamSynchronize(a));
  });
}
