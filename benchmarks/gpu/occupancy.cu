// What CUDA says of the occupancy, for seeded random launches of kernels with many register counts: CSV on standard output.
//   nvcc -arch=sm_90 -o occupancy occupancy.cu && ./occupancy 6000 1 > occupancy.csv
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

// N live values a thread, and a bound that keeps the compiler from spilling them.
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS) kernel(float* out, int n) {
  extern __shared__ float shared[];
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = out[i * 32 + threadIdx.x];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = v[i] * v[(i + 1) % N] + shared[(k + i) % 16];
#pragma unroll
  for (int i = 0; i < N; ++i) out[i * 32 + threadIdx.x] = v[i];
}

using Kernel = void (*)(float*, int);

template <int N>
void add(std::vector<Kernel>& all) {
  all.push_back(kernel<N, 1024>);
  all.push_back(kernel<N, 256>);
}

int main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::mt19937 random(argc > 2 ? std::atoi(argv[2]) : 1);
  std::vector<Kernel> all;
  add<1>(all), add<4>(all), add<8>(all), add<12>(all), add<16>(all), add<20>(all), add<24>(all), add<28>(all);
  add<32>(all), add<40>(all), add<48>(all), add<56>(all), add<64>(all), add<80>(all), add<96>(all), add<112>(all);
  add<128>(all), add<144>(all), add<160>(all), add<180>(all), add<200>(all);
  for (Kernel k : all) cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
  std::printf("registers,threads,shared,blocks\n");
  for (int i = 0; i < cases; ++i) {
    Kernel k = all[random() % all.size()];
    cudaFuncAttributes facts;
    if (cudaFuncGetAttributes(&facts, k) != cudaSuccess) return 3;
    const int threads = 1 + static_cast<int>(random() % facts.maxThreadsPerBlock);
    const std::size_t most = 227 * 1024 - facts.sharedSizeBytes;
    const std::size_t shared = random() % 3 == 0 ? 0 : random() % (most + 1);
    int blocks = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k, threads, shared) != cudaSuccess) return 3;
    std::printf("%d,%d,%zu,%d\n", facts.numRegs, threads, shared + facts.sharedSizeBytes, blocks);
  }
  return 0;
}
