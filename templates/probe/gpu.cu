// What a GPU's driver says of its limits, and what eight micro-benchmarks say of its speed: a TOML table in the file
// FILE of `probe [GPU] FILE`, times in cycles of a multiprocessor. Written for dagc tune, which runs it once for each GPU
// and keeps the answer.
//
//   clock           a loop of dependent multiplications against the wall clock
//   launch          an empty launch, event to event
//   latencies       one thread follows a chain of addresses that fits into the L1 cache, into the L2 cache, or neither
//   bandwidths      all multiprocessors read an array that fits into the L2 cache, or does not
//   departures      one multiprocessor reads from the L2 cache: cycles from one transaction to the next, where a warp's
//                   lanes share a line of 128 bytes (coalesced), and where each lane has a line of its own
//   scattered       all multiprocessors load, or store, one word of a sector of 32 bytes for each lane: sectors that the
//                   L2 cache serves in a cycle where requests are not coalesced
//   atomics         additions at one address, by one lane of each warp
//   block start     blocks that do nothing
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t error = (call);                                                           \
    if (error != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "dagc: GPU probe: %s: %s\n", #call, cudaGetErrorString(error));      \
      std::exit(3);                                                                             \
    }                                                                                           \
  } while (0)

namespace {

constexpr int kLine = 128, kRounds = 5;
constexpr int kInFlight = 8;  // loads of a warp at a time, so that the latency of one hides behind others

__global__ void empty() {}

__global__ void spin(int turns, float* out, long long* cycles) {
  float value = static_cast<float>(threadIdx.x);
  const long long begin = clock64();
  for (int i = 0; i < turns; ++i) value = value * 1.000001f + 1e-9f;
  const long long end = clock64();
  if (threadIdx.x == 0 && blockIdx.x == 0) *cycles = end - begin;
  if (value == 12345.0f) *out = value;
}

// Each element holds the place of the next. It goes on where the last chase ended; `warm` steps do not count.
template <bool kL1>
__global__ void chase(const std::uint32_t* next, int warm, int steps, std::uint32_t* out, long long* cycles) {
  std::uint32_t at = *out;
  for (int i = 0; i < warm; ++i) at = kL1 ? __ldca(next + at) : __ldcg(next + at);
  const long long begin = clock64();
  for (int i = 0; i < steps; ++i) at = kL1 ? __ldca(next + at) : __ldcg(next + at);
  *cycles = clock64() - begin;
  *out = at;
}

__global__ void read_all(const float4* data, std::int64_t n, int repeats, float* out) {
  float sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (int r = 0; r < repeats; ++r)
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
      const float4 v = __ldcg(data + i);
      sum += v.x + v.y + v.z + v.w;
    }
  if (sum == 12345.0f) *out = sum;
}

// One block; lane l of a warp reads word `l * apart` behind the warp's own place. `words` is a power of two.
__global__ void depart(const float* data, int words, int apart, int turns, float* out, long long* cycles) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int span = 32 * apart, warps = static_cast<int>(blockDim.x / 32);
  float sum = 0;
  __syncthreads();
  const long long begin = clock64();
  for (int i = 0; i < turns; i += kInFlight) {
    float v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      v[k] = __ldcg(data + ((((i + k) * warps + warp) * span) & (words - 1)) + lane * apart);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) sum += v[k];
  }
  __syncthreads();
  if (threadIdx.x == 0) *cycles = clock64() - begin;
  if (sum == 12345.0f) *out = sum;
}

// Each lane loads, or stores, the first word of a line of its own; consecutive warps the next sectors of the same lines.
// `lines` is a power of two.
template <bool kStore>
__global__ void scatter(float* data, unsigned lines, int turns, float* out) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  float sum = 0;
  for (int i = 0; i < turns; ++i) {
    const unsigned at = thread + static_cast<unsigned>(i) * threads;
    float* const word = data + (at & (lines - 1)) * (kLine / 4) + (at / lines % 4) * 8;
    if (kStore)
      __stcg(word, 1.0f);
    else
      sum += __ldcg(word);
  }
  if (sum == 12345.0f) *out = sum;
}

__global__ void contend(int* sum, int turns) {
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < turns; ++i) atomicAdd(sum, 1);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of `work`, event to event: the median of kRounds behind one that does not count.
template <class Work>
double timed(Work work, int rounds = kRounds) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
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

class Device {
 public:
  Device() {
    CHECK(cudaMalloc(&cycles_, sizeof *cycles_));
    CHECK(cudaMalloc(&out_, 64));
  }
  float* out() { return static_cast<float*>(out_); }
  std::uint32_t* number() { return static_cast<std::uint32_t*>(out_); }
  long long* cycles() { return cycles_; }
  double read() {
    long long found = 0;
    CHECK(cudaMemcpy(&found, cycles_, sizeof found, cudaMemcpyDeviceToHost));
    return static_cast<double>(found);
  }

 private:
  long long* cycles_ = nullptr;
  void* out_ = nullptr;
};

double clock_hz(Device& device, int multiprocessors) {
  const unsigned blocks = static_cast<unsigned>(multiprocessors);
  const double seconds = timed([&] { spin<<<blocks, 1024>>>(500000, device.out(), device.cycles()); });
  return device.read() / seconds;
}

// Cycles of a load, where `bytes` are visited line by line in random order; `cached`: after all of them were loaded once.
double latency(Device& device, std::size_t bytes, bool cached, bool l1, int most) {
  const std::size_t lines = bytes / kLine, words = kLine / sizeof(std::uint32_t);
  std::vector<std::uint32_t> order(lines), next(lines * words, 0);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));
  for (std::size_t i = 0; i < lines; ++i)
    next[order[i] * words] = static_cast<std::uint32_t>(order[(i + 1) % lines] * words);
  std::uint32_t* data = nullptr;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMemcpy(data, next.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(device.number(), 0, sizeof(std::uint32_t)));
  const int steps = std::min(most, static_cast<int>(lines)), warm = cached ? static_cast<int>(lines) : 0;
  std::vector<double> found;
  for (int i = 0; i < kRounds; ++i) {
    if (l1)
      chase<true><<<1, 1>>>(data, warm, steps, device.number(), device.cycles());
    else
      chase<false><<<1, 1>>>(data, warm, steps, device.number(), device.cycles());
    CHECK(cudaGetLastError());
    found.push_back(device.read() / steps);
  }
  CHECK(cudaFree(data));
  return median(found);
}

double bandwidth(Device& device, std::size_t bytes, int repeats, int blocks) {
  float4* data = nullptr;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMemset(data, 0, bytes));
  const std::int64_t n = static_cast<std::int64_t>(bytes / sizeof(float4));
  const double seconds = timed([&] { read_all<<<static_cast<unsigned>(blocks), 512>>>(data, n, repeats, device.out()); });
  CHECK(cudaFree(data));
  return static_cast<double>(bytes) * repeats / seconds;
}

// Cycles of one multiprocessor from a transaction to the next.
double departure(Device& device, int apart, int transactions) {
  const int bytes = 2 << 20, turns = 400, threads = 1024;
  float* data = nullptr;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMemset(data, 0, bytes));
  std::vector<double> found;
  for (int i = 0; i <= kRounds; ++i) {
    depart<<<1, threads>>>(data, bytes / 4, apart, turns, device.out(), device.cycles());
    CHECK(cudaGetLastError());
    const double cycles = device.read();
    if (i > 0) found.push_back(cycles / (static_cast<double>(turns) * (threads / 32) * transactions));
  }
  CHECK(cudaFree(data));
  return median(found);
}

// Sectors that the L2 cache serves in a second, of loads or of stores of one word each.
template <bool kStore>
double scattered(Device& device, std::size_t most, int multiprocessors) {
  unsigned lines = 1;
  while (2 * lines * static_cast<std::size_t>(kLine) <= most) lines *= 2;
  const int turns = 64, threads = 512;
  const unsigned blocks = 4 * static_cast<unsigned>(multiprocessors);
  float* data = nullptr;
  CHECK(cudaMalloc(&data, lines * static_cast<std::size_t>(kLine)));
  CHECK(cudaMemset(data, 0, lines * static_cast<std::size_t>(kLine)));
  const double seconds = timed([&] { scatter<kStore><<<blocks, threads>>>(data, lines, turns, device.out()); });
  CHECK(cudaFree(data));
  return static_cast<double>(turns) * blocks * threads / seconds;
}

// Seconds of the GPU for an atomic addition, where all are at one address.
double contended(Device& device, int multiprocessors) {
  const int turns = 32, warps = 16;
  const unsigned blocks = 2 * static_cast<unsigned>(multiprocessors);
  const auto run = [&](int n) {
    return timed([&] { contend<<<blocks, warps * 32>>>(reinterpret_cast<int*>(device.number()), n); });
  };
  return (run(2 * turns) - run(turns)) / (static_cast<double>(turns) * warps * blocks);
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* const answer = argc > 1 ? std::fopen(argv[argc - 1], "w") : nullptr;
  if (answer == nullptr) {
    std::fprintf(stderr, "dagc: GPU probe: the last argument must be a file that can be written\n");
    return 2;
  }
  const int which = argc > 2 ? std::atoi(argv[1]) : 0;
  CHECK(cudaSetDevice(which));
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, which));
  std::size_t room = 0, total = 0;
  CHECK(cudaMemGetInfo(&room, &total));
  Device device;
  const double clock = clock_hz(device, p.multiProcessorCount);
  const double launch = timed([] { empty<<<1, 32>>>(); }, 101);
  const std::size_t l2 = static_cast<std::size_t>(p.l2CacheSize);
  const std::size_t large = std::min(room / 4, std::size_t{2} << 30);
  const std::size_t beyond = std::min(room / 4, std::max(std::size_t{256} << 20, 4 * l2));
  const int blocks = 4 * p.multiProcessorCount;
  const unsigned many = 1u << 20;
  std::fprintf(answer, "[gpu]\nname = \"%s\"\narch = \"sm_%d%d\"\n", p.name, p.major, p.minor);
  std::fprintf(answer, "multiprocessors = %d\nclock = %.6g\n", p.multiProcessorCount, clock);
  std::fprintf(answer, "max_threads_per_multiprocessor = %d\n", p.maxThreadsPerMultiProcessor);
  std::fprintf(answer, "max_blocks_per_multiprocessor = %d\n", p.maxBlocksPerMultiProcessor);
  std::fprintf(answer, "registers_per_multiprocessor = %d\n", p.regsPerMultiprocessor);
  std::fprintf(answer, "shared_per_multiprocessor = %zu\n", p.sharedMemPerMultiprocessor);
  std::fprintf(answer, "shared_reserved_per_block = %zu\n", p.reservedSharedMemPerBlock);
  std::fprintf(answer, "l2_bytes = %zu\n\n[gpu.measured]\n", l2);
  std::fprintf(answer, "launch_cycles = %.5g\n", launch * clock);
  std::fprintf(answer, "l1_latency = %.5g\n", latency(device, 16 << 10, true, true, 1 << 12));
  std::fprintf(answer, "l2_latency = %.5g\n", latency(device, std::max(std::size_t{1} << 20, l2 / 8), true, false, 1 << 14));
  std::fprintf(answer, "memory_latency = %.5g\n", latency(device, beyond, false, false, 1 << 14));
  const double near = bandwidth(device, std::max(std::size_t{1} << 20, l2 / 4), 40, blocks);
  std::fprintf(answer, "l2_bytes_per_cycle = %.5g\n", near / clock);
  std::fprintf(answer, "memory_bytes_per_cycle = %.5g\n", bandwidth(device, large, 1, 16 * blocks) / clock);
  std::fprintf(answer, "departure_coalesced = %.5g\n", departure(device, 1, 1));
  std::fprintf(answer, "departure_uncoalesced = %.5g\n", departure(device, 32, 32));
  const std::size_t quarter = std::max(std::size_t{1} << 20, l2 / 4);
  std::fprintf(answer, "l2_loads_per_cycle = %.5g\n", scattered<false>(device, quarter, p.multiProcessorCount) / clock);
  std::fprintf(answer, "l2_stores_per_cycle = %.5g\n", scattered<true>(device, quarter, p.multiProcessorCount) / clock);
  std::fprintf(answer, "atomic_cycles = %.5g\n", contended(device, p.multiProcessorCount) * clock);
  std::fprintf(answer, "block_start_cycles = %.5g\n", timed([] { empty<<<many, 32>>>(); }) / many * clock);
  return std::fclose(answer) == 0 ? 0 : 5;
}
