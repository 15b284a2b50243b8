// What a machine can do at most, for both targets: lines in the file FILE of `ceilings FILE`.
//
//   stream BYTES SPEED   bytes per second that the fastest of a few kernels moves which read, write, copy or update arrays
//                        of BYTES again and again: of small arrays from a cache
//   operations 0 PAIRS   multiplications and additions of float per second, a pair each, or pairs of additions if that is more
//   link 0 SPEED         bytes per second from the first GPU to the second, if there are two
//   host_link 0 SPEED    bytes per second between pinned memory of the host and the GPU, in the faster direction
//   launch 0 SECONDS     from the start of an empty launch to that of the next one on its stream, the shorter of launches
//                        one by one and of a captured graph
//   wait 0 SECONDS       that the CPU waits for a launch beyond that
//
// Figures are the best of several rounds, not their median: no program should be faster. A GPU works with all
// multiprocessors; on the host a launch is work for one core, which also has the C library's copies.
#include "dagc/target.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t error = (call);                                                           \
    if (error != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "dagc: ceilings: %s: %s\n", #call, cudaGetErrorString(error));       \
      std::exit(3);                                                                             \
    }                                                                                           \
  } while (0)

namespace {

#if DAGC_TARGET_CUDA
constexpr std::size_t kSmallest = std::size_t{1} << 20, kLargest = std::size_t{1} << 30;  // bytes of an array
constexpr double kMoved = 4e9;  // bytes of a round, by one launch or several
#else
constexpr std::size_t kSmallest = std::size_t{1} << 14, kLargest = std::size_t{1} << 27;
constexpr double kMoved = 1e7;
#endif
constexpr int kRounds = 3, kManyRounds = 50, kChain = 100, kChains = 32, kThreads = 512;

struct Range {
  std::int64_t first, step;
};

// The elements of a thread.
__device__ inline Range mine() {
#if DAGC_TARGET_CUDA
  return {static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, static_cast<std::int64_t>(gridDim.x) * blockDim.x};
#else
  return {0, 1};
#endif
}

__global__ void empty() {}

// Loads past the L1 cache of a multiprocessor, which a launch finds empty.
__global__ void read(const int4* a, int4* out, std::int64_t n, int repeats) {
  const Range all = mine();
  int sum = 0;
  for (int r = 0; r < repeats; ++r) {
    for (std::int64_t i = all.first; i < n; i += all.step) {
      const int4 v = __ldcg(a + i);
      sum += v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 123456789) out->x = sum;
}

__global__ void write(int4* a, std::int64_t n, int repeats) {
  const Range all = mine();
  for (int r = 0; r < repeats; ++r)
    for (std::int64_t i = all.first; i < n; i += all.step) a[i] = int4{r, r, r, r};
}

__global__ void copy(const int4* a, int4* b, std::int64_t n, int repeats) {
  const Range all = mine();
  for (int r = 0; r < repeats; ++r) {
    for (std::int64_t i = all.first; i < n; i += all.step) b[i] = __ldcg(a + i);
  }
}

__global__ void update(int4* a, std::int64_t n, int repeats) {
  const Range all = mine();
  for (int r = 0; r < repeats; ++r) {
    for (std::int64_t i = all.first; i < n; i += all.step) {
      int4 v = __ldcg(a + i);
      v.x += r, v.y += r, v.z += r, v.w += r;
      a[i] = v;
    }
  }
}

// Independent chains, so that the latency of one hides behind others.
template <bool kMultiplied>
__global__ void calculate(float* out, int turns) {
  float v[kChains];
  for (int k = 0; k < kChains; ++k) v[k] = static_cast<float>(threadIdx.x) + static_cast<float>(k);
  for (int i = 0; i < turns; ++i)
    for (int k = 0; k < kChains; ++k) v[k] = (kMultiplied ? v[k] * 0.999f : v[k]) + 0.5f;
  float sum = 0;
  for (int k = 0; k < kChains; ++k) sum += v[k];
  if (sum == 12345.0f) *out = sum;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The shortest seconds of `work`, to its end on the stream.
template <class Work>
double shortest(cudaStream_t stream, Work work, int rounds = kRounds) {
  double best = 1e30;
  for (int i = 0; i <= rounds; ++i) {
    CHECK(cudaStreamSynchronize(stream));
    const double begin = now();
    work();
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    if (i > 0) best = std::min(best, now() - begin);  // the first warms up
  }
  return best;
}

struct Arrays {
  char *a = nullptr, *b = nullptr;
  cudaStream_t stream{};
};

// Bytes per second that arrays of `bytes` are moved with at most.
double speed(const Arrays& arrays, std::size_t bytes, int multiprocessors) {
  const std::int64_t n = static_cast<std::int64_t>(bytes / sizeof(int4));
  int4 *const a = reinterpret_cast<int4*>(arrays.a), *const b = reinterpret_cast<int4*>(arrays.b);
  const int repeats = std::max(1, static_cast<int>(kMoved / static_cast<double>(bytes)));
  double best = 0;
  const auto faster = [&](double moved, double seconds) { best = std::max(best, moved * static_cast<double>(bytes) * repeats / seconds); };
#if DAGC_TARGET_CUDA
  // A grid that is resident as a whole (0): each pass has gone through the array before the next one begins. And a launch
  // for each pass, with a thread for each four elements: within one launch, its resident blocks would repeat what a cache holds.
  const std::int64_t whole = (n + 4 * kThreads - 1) / (4 * kThreads);
  const unsigned grids[] = {0, static_cast<unsigned>(std::max<std::int64_t>(1, whole))};
  const int passes[] = {repeats, 1};
  const dim3 block(kThreads);
#else
  const unsigned grids[] = {1};
  const int passes[] = {repeats};
  const dim3 block(1);
  (void)multiprocessors;
  faster(2, shortest(arrays.stream, [&] {
           for (int r = 0; r < repeats; ++r) std::memcpy(arrays.b, arrays.a, bytes), arrays.a[0] = arrays.b[bytes - 1];
         }));
  faster(1, shortest(arrays.stream, [&] {
           for (int r = 0; r < repeats; ++r) std::memset(arrays.a, arrays.a[bytes - 1] + 1, bytes);
         }));
#endif
  for (std::size_t k = 0; k < sizeof grids / sizeof *grids; ++k) {
    const int inside = passes[k], launches = repeats / inside;
    const auto timed = [&](double moved, auto kernel, auto... given) {
      int blocks = static_cast<int>(grids[k]);
#if DAGC_TARGET_CUDA
      if (blocks == 0) {
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0));
        blocks *= multiprocessors;
      }
#endif
      const dim3 grid(static_cast<unsigned>(blocks));
      faster(moved, shortest(arrays.stream, [&] {
               for (int i = 0; i < launches; ++i) dagc::launch(kernel, grid, block, 0, arrays.stream, given..., n, inside);
             }));
    };
    timed(1, read, a, b);
    timed(1, write, a);
    timed(2, copy, a, b);
    timed(2, update, a);
  }
  return best;
}

double pairs(const Arrays& arrays, int multiprocessors) {
  const int threads = DAGC_TARGET_CUDA ? kThreads : 1, blocks = DAGC_TARGET_CUDA ? 16 * multiprocessors : 1;
  const int turns = DAGC_TARGET_CUDA ? 2000 : 20000;
  const auto seconds = [&](void (*kernel)(float*, int)) {
    const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
    return shortest(arrays.stream, [&] { dagc::launch(kernel, grid, block, 0, arrays.stream, reinterpret_cast<float*>(arrays.b), turns); });
  };
  const double all = static_cast<double>(kChains) * turns * threads * blocks;
  return std::max(all / seconds(calculate<true>), all / 2 / seconds(calculate<false>));
}

#if DAGC_TARGET_CUDA
// Bytes per second from the first GPU to the second at most, 0 if there is only one.
double link(const Arrays& arrays, std::size_t bytes) {
  int devices = 0, direct = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) return 0;
  CHECK(cudaDeviceCanAccessPeer(&direct, 0, 1));
  if (direct) CHECK(cudaDeviceEnablePeerAccess(1, 0));
  char* other = nullptr;
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&other, bytes));
  CHECK(cudaSetDevice(0));
  const double seconds = shortest(arrays.stream, [&] { CHECK(cudaMemcpyPeerAsync(other, 1, arrays.a, 0, bytes, arrays.stream)); });
  CHECK(cudaFree(other));
  return static_cast<double>(bytes) / seconds;
}

double host_link(const Arrays& arrays, std::size_t bytes) {
  char* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  const auto seconds = [&](void* to, const void* from) {
    return shortest(arrays.stream, [&] { CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, arrays.stream)); });
  };
  const double best = std::min(seconds(arrays.a, pinned), seconds(pinned, arrays.a));
  CHECK(cudaFreeHost(pinned));
  return static_cast<double>(bytes) / best;
}
#endif

void chain(cudaStream_t stream, int launches) {
  for (int i = 0; i < launches; ++i) dagc::launch(empty, dim3(1), dim3(1), 0, stream);
}

double seconds_of_graph(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  chain(stream, kChain);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const double seconds = shortest(stream, [&] { CHECK(cudaGraphLaunch(executable, stream)); }, kManyRounds);
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* const answer = argc > 1 ? std::fopen(argv[argc - 1], "w") : nullptr;
  if (answer == nullptr) {
    std::fprintf(stderr, "dagc: ceilings: the last argument must be a file that can be written\n");
    return 2;
  }
  int multiprocessors = 1;
  std::size_t room = 4 * kLargest;
#if DAGC_TARGET_CUDA
  std::size_t total = 0;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(cudaMemGetInfo(&room, &total));
#endif
  std::size_t largest = kSmallest;
  while (2 * largest <= kLargest && 2 * largest <= room / 4) largest *= 2;
  Arrays arrays;
  CHECK(cudaStreamCreateWithFlags(&arrays.stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&arrays.a, largest));
  CHECK(cudaMalloc(&arrays.b, largest));
  CHECK(cudaMemset(arrays.a, 1, largest));
  CHECK(cudaMemset(arrays.b, 1, largest));
  CHECK(cudaDeviceSynchronize());
  for (std::size_t bytes = kSmallest; bytes <= largest; bytes *= 2) {
    const std::size_t size = bytes / 16 * 15;  // arrays without their edges are a little smaller than a power of two
    std::fprintf(answer, "stream %zu %.6g\n", size, speed(arrays, size, multiprocessors));
  }
  std::fprintf(answer, "operations 0 %.6g\n", pairs(arrays, multiprocessors));
#if DAGC_TARGET_CUDA
  if (const double found = link(arrays, std::min(largest, std::size_t{1} << 28)); found > 0)
    std::fprintf(answer, "link 0 %.6g\n", found);
  std::fprintf(answer, "host_link 0 %.6g\n", host_link(arrays, std::min(largest, std::size_t{1} << 28)));
#endif
  const double one = shortest(arrays.stream, [&] { chain(arrays.stream, 1); }, kManyRounds);
  const double many = shortest(arrays.stream, [&] { chain(arrays.stream, kChain); }, kManyRounds);
  const double launch = std::min(many, seconds_of_graph(arrays.stream)) / kChain;
  std::fprintf(answer, "launch 0 %.6g\n", launch);
  std::fprintf(answer, "wait 0 %.6g\n", std::max(0.0, one - launch));
  CHECK(cudaFree(arrays.a));
  CHECK(cudaFree(arrays.b));
  CHECK(cudaStreamDestroy(arrays.stream));
  return std::fclose(answer) == 0 ? 0 : 5;
}
