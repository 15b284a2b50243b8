// What accesses cost that meet at few places: atomic additions at few addresses, and banks of shared memory. A CSV on standard
// output: what, type, ways, cycles.
//
//   nvcc -O2 -arch=sm_90 -o contention benchmarks/gpu/contention.cu && ./contention > contention.csv
//
// global_lines: one lane of each warp adds, at one of `ways` lines of 128 bytes; cycles of the GPU for an addition
// global_words: all lanes of each warp add, at `ways` words of one line; cycles of the GPU for a request of a warp
// global_spread: the same, each warp of a block of 32 at a line of its own (32 lines)
// shared_load, shared_store: the lanes of a warp access words `ways` apart; cycles of a multiprocessor for a request
// shared_atomic: the lanes of each warp add at `ways` words that are side by side; the same
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                               \
  do {                                                                            \
    const cudaError_t error = (call);                                             \
    if (error != cudaSuccess) {                                                   \
      std::fprintf(stderr, "contention: %s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(3);                                                               \
    }                                                                             \
  } while (0)

namespace {

constexpr int kTurns = 64, kThreads = 1024, kRounds = 5, kLineWords = 32;

template <class T>
__global__ void lines(T* data, int ways, int turns) {
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < turns; ++i) atomicAdd(data + ((warp + i) % ways) * kLineWords, T(1));
}

template <class T>
__global__ void words(T* data, int ways, int apart, int turns) {
  T* const line = data + threadIdx.x / 32 * apart;
  for (int i = 0; i < turns; ++i) atomicAdd(line + (threadIdx.x + i) % 32 % ways, T(1));
}

template <bool kStore>
__global__ void banks(int ways, int turns, float* out, long long* cycles) {
  __shared__ float part[8192];
  for (int k = threadIdx.x; k < 8192; k += blockDim.x) part[k] = 1.0f;
  const int lane = threadIdx.x % 32;
  float sum = 0;
  __syncthreads();
  const long long begin = clock64();
  for (int i = 0; i < turns; ++i) {
    volatile float* const at = part + ((lane * ways + i * 32) & 8191);
    if (kStore)
      *at = 2.0f;
    else
      sum += *at;
  }
  __syncthreads();
  if (threadIdx.x == 0) *cycles = clock64() - begin;
  if (sum == 12345.0f) *out = sum;
}

template <class T>
__global__ void shared_atomics(int ways, int turns, T* out, long long* cycles) {
  __shared__ T part[1024];
  part[threadIdx.x] = T(0);
  T* const own = part + threadIdx.x / 32 * 32;
  __syncthreads();
  const long long begin = clock64();
  for (int i = 0; i < turns; ++i) atomicAdd(own + (threadIdx.x + i) % 32 % ways, T(1));
  __syncthreads();
  if (threadIdx.x == 0) *cycles = clock64() - begin;
  if (part[threadIdx.x] == T(-1)) *out = part[threadIdx.x];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of a launch, event to event.
template <class Work>
double timed(Work work) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i <= kRounds; ++i) {
    CHECK(cudaEventRecord(begin));
    work();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaGetLastError());
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0) times.push_back(milliseconds * 1e-3);
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  return median(times);
}

template <class T>
void of_type(const char* type, double clock, unsigned blocks, long long* cycles) {
  T* data = nullptr;
  const std::size_t bytes = std::size_t{1} << 22;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMemset(data, 0, bytes));
  const double requests = double(blocks) * (kThreads / 32) * kTurns;
  for (int ways = 1; ways <= 4096; ways *= 2) {
    const auto run = [&](int turns) { return timed([&] { lines<T><<<blocks, kThreads>>>(data, ways, turns); }); };
    std::printf("global_lines,%s,%d,%.4g\n", type, ways, (run(2 * kTurns) - run(kTurns)) * clock / requests);
  }
  for (int apart : {0, kLineWords})
    for (int ways = 1; ways <= 32; ways *= 2) {
      const auto run = [&](int turns) { return timed([&] { words<T><<<blocks, kThreads>>>(data, ways, apart, turns); }); };
      const double each = (run(2 * kTurns) - run(kTurns)) * clock / requests;
      std::printf("%s,%s,%d,%.4g\n", apart ? "global_spread" : "global_words", type, ways, each);
    }
  for (int ways = 1; ways <= 32; ways *= 2) {
    std::vector<double> found;
    for (int i = 0; i <= kRounds; ++i) {
      shared_atomics<T><<<1, kThreads>>>(ways, 1024, data, cycles);
      CHECK(cudaGetLastError());
      long long took = 0;
      CHECK(cudaMemcpy(&took, cycles, sizeof took, cudaMemcpyDeviceToHost));
      if (i > 0) found.push_back(double(took) / (1024 * (kThreads / 32)));
    }
    std::printf("shared_atomic,%s,%d,%.4g\n", type, ways, median(found));
  }
  CHECK(cudaFree(data));
}

template <bool kStore>
void of_banks(long long* cycles) {
  for (int ways = 1; ways <= 64; ++ways) {
    std::vector<double> found;
    for (int i = 0; i <= kRounds; ++i) {
      banks<kStore><<<1, kThreads>>>(ways, 1024, nullptr, cycles);
      CHECK(cudaGetLastError());
      long long took = 0;
      CHECK(cudaMemcpy(&took, cycles, sizeof took, cudaMemcpyDeviceToHost));
      if (i > 0) found.push_back(double(took) / (1024 * (kThreads / 32)));
    }
    std::printf("%s,f32,%d,%.4g\n", kStore ? "shared_store" : "shared_load", ways, median(found));
  }
}

}  // namespace

int main() {
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  int kilohertz = 0;
  CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  std::fprintf(stderr, "%s, %d multiprocessors, %.4g MHz at most\n", p.name, p.multiProcessorCount, kilohertz * 1e-3);
  long long* cycles = nullptr;
  CHECK(cudaMalloc(&cycles, sizeof *cycles));
  const double clock = kilohertz * 1e3;
  const unsigned blocks = 2 * static_cast<unsigned>(p.multiProcessorCount);
  std::printf("what,type,ways,cycles\n");
  of_type<int>("i32", clock, blocks, cycles);
  of_type<float>("f32", clock, blocks, cycles);
  of_banks<false>(cycles);
  of_banks<true>(cycles);
  return 0;
}
