// Times of transfers between memory of the host and the first GPUs, and between two of these: lines "FROM TO BYTES SECONDS" in
// the file FILE of `transfers GPUS [pageable] FILE`, where 0 is the host and 1 the first GPU. At most GPUS are measured; the
// memory of the host is page-locked, or pageable. For both targets. Written for dagc tune, which fits a latency and a
// bandwidth.
//
//   to a GPU    several copies, one behind the other on a stream: the op that reads them follows on the stream
//   to the host one copy, waited for: the host reads it next
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

// Memory on a side, and a stream there; the host's copies are on the stream of the other side.
struct Memory {
  Memory(int where, bool is_pageable) : side(where), pageable(is_pageable && side == 0) {
    if (side > 0) CHECK(cudaSetDevice(side - 1));
    if (side > 0) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (pageable) {
      data = static_cast<char*>(std::malloc(kLargest));
    } else if (side == 0) {
      CHECK(cudaMallocHost(&data, kLargest));
    } else {
      CHECK(cudaMalloc(&data, kLargest));
    }
    if (side == 0) std::memset(data, 1, kLargest);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (pageable) std::free(data);
    else if (side == 0) cudaFreeHost(data);
    else cudaFree(data);
    if (side > 0) cudaStreamDestroy(stream);
  }

  int side;
  bool pageable;
  char* data = nullptr;
  cudaStream_t stream{};
};

// Copies from one side to the other, as programs issue them: on the stream of the GPU that needs them.
void copy(std::FILE* answer, const Memory& from, const Memory& to) {
  const Memory& at = to.side > 0 ? to : from;
  int direct = 0;
  CHECK(cudaSetDevice(at.side - 1));
  if (from.side > 0 && to.side > 0 && cudaDeviceCanAccessPeer(&direct, to.side - 1, from.side - 1) == cudaSuccess && direct)
    (void)cudaDeviceEnablePeerAccess(from.side - 1, 0);
  (void)cudaGetLastError();  // of a link that is open already
  const cudaMemcpyKind kind = to.side == 0 ? cudaMemcpyDeviceToHost : from.side == 0 ? cudaMemcpyHostToDevice : cudaMemcpyDefault;
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4)
    std::fprintf(answer, "%d %d %zu %.9g\n", from.side, to.side, bytes,
                 timed(to.data, from.data, bytes, kind, to.side > 0 ? kBehind : 1, at.stream));
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* const answer = argc > 2 ? std::fopen(argv[argc - 1], "w") : nullptr;
  if (answer == nullptr) {
    std::fprintf(stderr, "dagc: transfers: give a number of GPUs, and a file that can be written\n");
    return 2;
  }
  int gpus = std::atoi(argv[1]), there = 0;
  const bool pageable = std::strcmp(argv[2], "pageable") == 0;
#if !defined(__CUDACC__)
  dagc::host::gpus = gpus;
#endif
  CHECK(cudaGetDeviceCount(&there));
  gpus = std::min(gpus, there);
  for (int a = 0; a <= gpus; ++a)
    for (int b = a + 1; b <= gpus; ++b) {
      const Memory one(a, pageable), other(b, pageable);
      copy(answer, one, other);
      copy(answer, other, one);
    }
  return std::fclose(answer) == 0 ? 0 : 5;
}
