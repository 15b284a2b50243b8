// Reductions by peer on one GPU, whose ranks are streams: no link between GPUs, so a lower bound of what two GPUs take.
//
//   nvcc -O3 -std=c++17 -arch=native -Itemplates/runtime benchmarks/gpu/peer_reduce.cu -o peer_reduce
//   CUDA_DEVICE_MAX_CONNECTIONS=32 ./peer_reduce > peer_reduce.csv
//
// A row: the median and the least time of one reduction of doubles, in microseconds, of graphs with 100 of them; of a
// kernel that does nothing in its place; whether all ranks have the sum in the order of the ranks, to the last bit.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dagc/peer_reduce.hpp"

#define GOOD(call)                                                                        \
  do {                                                                                    \
    if (const cudaError_t status = (call); status != cudaSuccess) {                       \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (0)

constexpr int kChain = 100, kTimes = 21;

__global__ void nothing(double*) {}

struct Rank {
  dagc::PeerReduction all{};
  dagc::Flag* memory = nullptr;
  double *from = nullptr, *to = nullptr;
  cudaStream_t stream{};
  cudaGraphExec_t graph{}, empty{};
};

template <class Enqueue>
cudaGraphExec_t chain(cudaStream_t stream, Enqueue enqueue) {
  cudaGraph_t graph;
  cudaGraphExec_t out;
  GOOD(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kChain; ++i) enqueue();
  GOOD(cudaStreamEndCapture(stream, &graph));
  GOOD(cudaGraphInstantiate(&out, graph, 0));
  return out;
}

// Microseconds of one link of the chains of all ranks.
std::vector<double> timed(std::vector<Rank>& ranks, cudaGraphExec_t Rank::*graph) {
  std::vector<double> out;
  for (int i = 0; i < kTimes + 3; ++i) {
    GOOD(cudaDeviceSynchronize());
    const auto start = std::chrono::steady_clock::now();
    for (Rank& rank : ranks) GOOD(cudaGraphLaunch(rank.*graph, rank.stream));
    for (Rank& rank : ranks) GOOD(cudaStreamSynchronize(rank.stream));
    if (i >= 3) out.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kChain);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void measure(int n, std::int64_t count, bool two_shots) {
  const dagc::PeerShape chosen(count, sizeof(double), n), shape(count, n, two_shots);
  int processors = 0;  // with two blocks each: all ranks must fit on the GPU, since they wait for each other
  GOOD(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  const unsigned int blocks = std::min(shape.blocks, static_cast<unsigned int>(2 * processors / n));
  const std::size_t words = 2 + 2 * static_cast<std::size_t>(shape.slots);
  std::vector<Rank> ranks(static_cast<std::size_t>(n));
  std::vector<double> sum(static_cast<std::size_t>(count)), value(sum), result(sum);
  for (int r = 0; r < n; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    GOOD(cudaMalloc(&rank.memory, words * sizeof(dagc::Flag)));
    GOOD(cudaMemset(rank.memory, 0, words * sizeof(dagc::Flag)));
    GOOD(cudaMalloc(&rank.from, sum.size() * sizeof(double)));
    GOOD(cudaMalloc(&rank.to, sum.size() * sizeof(double)));
    GOOD(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      value[i] = 1.0 / (3.0 + r + static_cast<double>(i % 7));
      sum[i] = r == 0 ? value[i] : sum[i] + value[i];
    }
    GOOD(cudaMemcpy(rank.from, value.data(), sum.size() * sizeof(double), cudaMemcpyHostToDevice));
  }
  for (int r = 0; r < n; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.all = {{}, rank.memory, rank.memory + 1, shape.piece, r, n, two_shots};
    for (int other = 0; other < n; ++other) rank.all.inbox[other] = ranks[static_cast<std::size_t>(other)].memory + 2;
    rank.graph = chain(rank.stream, [&] {
      dagc::peer::reduce<<<blocks, dagc::peer_threads, 0, rank.stream>>>(rank.all, rank.from, rank.to, count, dagc::peer::Sum());
    });
    rank.empty = chain(rank.stream, [&] { nothing<<<blocks, dagc::peer_threads, 0, rank.stream>>>(rank.to); });
  }
  GOOD(cudaDeviceSynchronize());
  const std::vector<double> times = timed(ranks, &Rank::graph), floor = timed(ranks, &Rank::empty);
  bool right = true;
  for (Rank& rank : ranks) {
    GOOD(cudaMemcpy(result.data(), rank.to, sum.size() * sizeof(double), cudaMemcpyDeviceToHost));
    right = right && std::memcmp(result.data(), sum.data(), sum.size() * sizeof(double)) == 0;
  }
  std::printf("%d,%lld,%d,%d,%u,%.3f,%.3f,%.3f,%s\n", n, static_cast<long long>(count), two_shots ? 2 : 1,
              chosen.two_shots == two_shots, blocks, times[kTimes / 2], times[0], floor[kTimes / 2], right ? "right" : "WRONG");
  std::fflush(stdout);
  for (Rank& rank : ranks) {
    GOOD(cudaGraphExecDestroy(rank.graph));
    GOOD(cudaGraphExecDestroy(rank.empty));
    GOOD(cudaStreamDestroy(rank.stream));
    for (void* memory : {static_cast<void*>(rank.memory), static_cast<void*>(rank.from), static_cast<void*>(rank.to)}) GOOD(cudaFree(memory));
  }
}

// Arguments: the numbers of ranks; without any, 2, 4 and 8.
int main(int argc, char** argv) {
  std::vector<int> numbers;
  for (int i = 1; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
  if (numbers.empty()) numbers = {2, 4, 8};
  std::printf("ranks,doubles,shots,chosen,blocks,median_us,least_us,empty_us,sums\n");
  for (int ranks : numbers)
    for (std::int64_t count : {1, 32, 1024, 4096, 16384, 65536, 262144, 1048576})
      for (bool two_shots : {false, true}) measure(ranks, count, two_shots);
}
