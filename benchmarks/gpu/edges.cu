// Edges of CUDA graphs between kernels that depend on each other, written by hand beside programmatic.hpp.
//
//   nvcc -O3 -std=c++17 -arch=native -Itemplates/runtime benchmarks/gpu/edges.cu -o edges && ./edges
//
// A row: kernel, blocks, edges, those that became programmatic of all, microseconds of a kernel of a chain (median and
// least of 21 launches of 1 000 kernels), whether the result has every bit that it must have. The first line says whether the
// function of a captured node is the symbol that `WaitingKernels` was given.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "dagc/programmatic.hpp"

constexpr int kChain = 1000, kTimes = 21;
enum Edges { full, programmatic, early };

template <Edges edges>
__global__ void next(std::int64_t* a, std::int64_t n) {
  if (edges != full) dagc::wait_for_dependencies();
  if (edges == early) dagc::let_dependents_start();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) a[i] = (a[i] * 48271 + a[i] / 7) % 1000003;
}

static const dagc::WaitingKernels waiting(next<programmatic>, next<early>);

template <Edges edges>
void measure(const char* name, unsigned int blocks, cudaStream_t stream) {
  const std::int64_t n = 128 * static_cast<std::int64_t>(blocks);
  std::vector<std::int64_t> start(static_cast<std::size_t>(n)), want(start), got(start);
  for (std::int64_t i = 0; i < n; ++i) start[static_cast<std::size_t>(i)] = want[static_cast<std::size_t>(i)] = i + 1;
  for (int k = 0; k < kChain; ++k)
    for (std::int64_t& a : want) a = (a * 48271 + a / 7) % 1000003;
  std::int64_t* a = nullptr;
  DAGC_CUDA(cudaMalloc(&a, start.size() * sizeof(std::int64_t)));
  cudaGraph_t graph;
  cudaGraphExec_t run;
  DAGC_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < kChain; ++k) next<edges><<<blocks, 128, 0, stream>>>(a, n);
  DAGC_CUDA(cudaStreamEndCapture(stream, &graph));
  if (edges != full && blocks == 1) {
    std::size_t nodes = 1;
    cudaGraphNode_t first;
    cudaKernelNodeParams launch = {};
    DAGC_CUDA(cudaGraphGetRootNodes(graph, &first, &nodes));
    DAGC_CUDA(cudaGraphKernelNodeGetParams(first, &launch));
    std::printf("# the function of a node is the symbol: %s\n", launch.func == reinterpret_cast<const void*>(next<edges>) ? "yes" : "NO");
  }
  const std::size_t changed = dagc::make_programmatic(graph);
  DAGC_CUDA(cudaGraphInstantiate(&run, graph, 0));
  std::vector<double> times;
  bool right = true;
  for (int i = 0; i < kTimes; ++i) {
    DAGC_CUDA(cudaMemcpy(a, start.data(), start.size() * sizeof(std::int64_t), cudaMemcpyHostToDevice));
    DAGC_CUDA(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    DAGC_CUDA(cudaGraphLaunch(run, stream));
    DAGC_CUDA(cudaStreamSynchronize(stream));
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kChain);
    DAGC_CUDA(cudaMemcpy(got.data(), a, got.size() * sizeof(std::int64_t), cudaMemcpyDeviceToHost));
    right = right && got == want;
  }
  std::sort(times.begin(), times.end());
  std::printf("by hand,%u,%s,%zu,%d,%.4f,%.4f,%s\n", blocks, name, changed, kChain - 1, times[kTimes / 2], times[0], right ? "right" : "WRONG");
  std::fflush(stdout);
  DAGC_CUDA(cudaGraphExecDestroy(run));
  DAGC_CUDA(cudaGraphDestroy(graph));
  DAGC_CUDA(cudaFree(a));
}

int main() {
  cudaStream_t stream;
  DAGC_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("kernel,blocks,edges,programmatic,of,median_us,least_us,result\n");
  for (unsigned int blocks : {1u, 8u, 264u, 2112u}) {
    measure<full>("full", blocks, stream);
    measure<programmatic>("programmatic", blocks, stream);
    measure<early>("early", blocks, stream);
  }
}
