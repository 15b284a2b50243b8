// What a copy to the host costs a thread that starts for it, beside the main thread: why features on threads may be slower.
//
//   nvcc -O3 -std=c++17 -o copies copies.cu && ./copies [MEGABYTES] [TIMES]
//
// Each line is a way; each number the median in milliseconds of one step, in a process of its own (./copies runs itself):
//   thread   until the thread runs and has set its device
//   first    its first copy, of 4 bytes
//   alloc    `new` for the copy, not touched
//   copy     one copy of all
//   read     the sum of what was copied
//   free     `delete`
//   whole    from before the threads start until all have ended
//
// Ways: main (no thread), one (a thread), two (two threads at the same time, the slower), touched and touched-two (memory is
// written before the copy), staged and staged-two (through page-locked memory of 1 MiB on a stream of each thread's own,
// whose creation is in `first`).
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#define CHECK(call)                                                                                       \
  do {                                                                                                    \
    const cudaError_t status = (call);                                                                    \
    if (status != cudaSuccess) {                                                                          \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status));     \
      std::exit(1);                                                                                       \
    }                                                                                                     \
  } while (0)

namespace {

constexpr int kSteps = 7;
const char* const kNames[kSteps] = {"thread", "first", "alloc", "copy", "read", "free", "whole"};
const char* const kWays[] = {"main", "one", "two", "touched", "touched-two", "staged", "staged-two"};
constexpr std::size_t kStaging = 1 << 20;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// The steps of one thread. `sum`: so that nothing is left out.
void work(const int* from, std::size_t count, bool touched, bool staged, double begin, double* out, long long* sum) {
  CHECK(cudaSetDevice(0));
  double at = now();
  const auto step = [&](int i) {
    const double end = now();
    out[i] = end - at;
    at = end;
  };
  out[0] = at - begin;
  int one = 0;
  cudaStream_t stream = nullptr;
  char* buffer = nullptr;
  if (staged) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&buffer, kStaging));
    CHECK(cudaMemcpyAsync(buffer, from, sizeof one, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
  } else {
    CHECK(cudaMemcpy(&one, from, sizeof one, cudaMemcpyDefault));
  }
  step(1);
  int* const to = new int[count];
  if (touched) std::memset(to, 1, count * sizeof(int));
  step(2);
  if (staged) {
    const std::size_t bytes = count * sizeof(int);
    for (std::size_t done = 0; done < bytes; done += kStaging) {
      const std::size_t part = std::min(kStaging, bytes - done);
      CHECK(cudaMemcpyAsync(buffer, reinterpret_cast<const char*>(from) + done, part, cudaMemcpyDefault, stream));
      CHECK(cudaStreamSynchronize(stream));
      std::memcpy(reinterpret_cast<char*>(to) + done, buffer, part);
    }
  } else {
    CHECK(cudaMemcpy(to, from, count * sizeof(int), cudaMemcpyDefault));
  }
  step(3);
  long long all = one;
  for (std::size_t i = 0; i < count; ++i) all += to[i];
  *sum += all;
  step(4);
  delete[] to;
  if (staged) {
    CHECK(cudaFreeHost(buffer));
    CHECK(cudaStreamDestroy(stream));
  }
  step(5);
}

int one_way(const std::string& way, std::size_t count) {
  int* from = nullptr;
  CHECK(cudaMalloc(&from, count * sizeof(int)));
  CHECK(cudaMemset(from, 0, count * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  double steps[2][kSteps] = {};
  long long sums[2] = {};
  const bool touched = way.rfind("touched", 0) == 0, staged = way.rfind("staged", 0) == 0;
  const bool two = way == "two" || way == "touched-two" || way == "staged-two";
  const int threads = two ? 2 : 1;
  const double begin = now();
  if (way == "main") {
    work(from, count, touched, staged, begin, steps[0], sums);
  } else {
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i)
      running.emplace_back(work, from, count, touched, staged, begin, steps[i], sums + i);
    for (auto& one : running) one.join();
  }
  const double whole = now() - begin;
  for (int i = 0; i + 1 < kSteps; ++i) std::printf("%.6f ", std::max(steps[0][i], steps[1][i]));
  std::printf("%.6f %lld\n", whole, sums[0] + sums[1]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--way") return one_way(argv[2], std::strtoull(argv[3], nullptr, 10));
  const std::size_t megabytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 24;
  const int times = argc > 2 ? std::atoi(argv[2]) : 7;
  std::printf("%zu MB, medians of %d processes, ms\n%-13s", megabytes, times, "");
  for (const char* name : kNames) std::printf("%9s", name);
  std::printf("\n");
  for (const char* way : kWays) {
    std::vector<double> found[kSteps];
    for (int i = 0; i < times; ++i) {
      const std::string command =
          std::string(argv[0]) + " --way " + way + " " + std::to_string(megabytes * 1'000'000 / sizeof(int));
      FILE* const said = popen(command.c_str(), "r");
      if (said == nullptr) return 1;
      for (auto& of : found) {
        double value = 0;
        if (std::fscanf(said, "%lf", &value) != 1) return 1;
        of.push_back(value);
      }
      pclose(said);
    }
    std::printf("%-13s", way);
    for (auto& of : found) {
      std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
      std::printf("%9.3f", of[of.size() / 2]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
