// As people write it: no word of dagc, a main of its own, a static kernel.
#include <cuda_runtime.h>

#include <cstdio>

#include "grid.cuh"

namespace heat {

template <class T, int BX, int BY>
__global__ void step(T* out, const T* in, long m, long n) {
  long j = (long)blockIdx.x * BX + threadIdx.x, i = (long)blockIdx.y * BY + threadIdx.y;
  if (i < m && j < n) out[idx(i, j, n)] = 2 * in[idx(i, j, n)];
}

}  // namespace heat

static __global__ void plain(double* out, const double* in, long m, long n) {
  long j = (long)blockIdx.x * blockDim.x + threadIdx.x, i = (long)blockIdx.y * blockDim.y + threadIdx.y;
  if (i < m && j < n) out[idx(i, j, n)] = 1 + in[idx(i, j, n)];
}

#ifdef __CUDACC__
struct Ends {
  float first, last;
};
struct alignas(8) Both {
  Ends of[2];
};
__global__ void ends(Ends* to, const float2 (*from)[1], Both*, char* done, int m) {
  if (threadIdx.x < (unsigned)m) {
    done[threadIdx.x] = 1;
    to[threadIdx.x] = {from[threadIdx.x][0].y, from[threadIdx.x][0].x};
  }
}
#endif

void launch_it(double* out, const double* in, long m, long n, cudaStream_t s) {
  plain<<<dim3((n + 31) / 32, m), dim3(32, 1), 0, s>>>(out, in, m, n);
}

int main(int argc, char**) {
  std::printf("%d\n", argc);
}
