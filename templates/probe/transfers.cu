// Times of transfers between memory of the host and the device: lines "to_device BYTES SECONDS" and "to_host BYTES SECONDS"
// in the file FILE of `transfers [pageable] FILE`. The memory is page-locked, or pageable. For both targets. Written for
// dagc tune, which fits a latency and a bandwidth.
//
//   to_device   several copies, one behind the other on a stream: the op that reads them follows on the stream
//   to_host     one copy, waited for: the host reads it next
#include "dagc/target.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t error = (call);                                                           \
    if (error != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "dagc: transfers: %s: %s\n", #call, cudaGetErrorString(error));      \
      std::exit(3);                                                                             \
    }                                                                                           \
  } while (0)

namespace {

constexpr std::size_t kSmallest = 4, kLargest = std::size_t{1} << 26;  // bytes
constexpr int kFewest = 5, kMost = 200, kBehind = 8;
constexpr double kEnough = 0.02;  // seconds for a size

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The median seconds of a copy.
double timed(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, int copies, cudaStream_t stream) {
  std::vector<double> times;
  const double end = now() + kEnough;
  for (int k = 0; k < kFewest || (k < kMost && now() < end); ++k) {
    const double begin = now();
    for (int i = 0; i < copies; ++i) CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (k > 0) times.push_back((now() - begin) / copies);  // the first warms up
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* const answer = argc > 1 ? std::fopen(argv[argc - 1], "w") : nullptr;
  if (answer == nullptr) {
    std::fprintf(stderr, "dagc: transfers: the last argument must be a file that can be written\n");
    return 2;
  }
  const bool pageable = argc > 2 && std::strcmp(argv[1], "pageable") == 0;
  char *host = nullptr, *device = nullptr;
  cudaStream_t stream;
  if (pageable)
    host = static_cast<char*>(std::malloc(kLargest));
  else
    CHECK(cudaMallocHost(&host, kLargest));
  CHECK(cudaMalloc(&device, kLargest));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::memset(host, 1, kLargest);
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    std::fprintf(answer, "to_device %zu %.9g\n", bytes, timed(device, host, bytes, cudaMemcpyHostToDevice, kBehind, stream));
    std::fprintf(answer, "to_host %zu %.9g\n", bytes, timed(host, device, bytes, cudaMemcpyDeviceToHost, 1, stream));
  }
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  if (pageable)
    std::free(host);
  else
    CHECK(cudaFreeHost(host));
  return std::fclose(answer) == 0 ? 0 : 5;
}
