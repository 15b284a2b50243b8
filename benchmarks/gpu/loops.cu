// Conjugate gradients by cuSPARSE and cuBLAS, as they are written by hand: scalars stay on the device, and the host looks at the
// residual after every second iteration. Poisson's equation on a square, to 1e-8 of |b|. Beside them the same method as one
// cooperative kernel, whose blocks wait for each other three times in each iteration.
//
//   loops SIDE ...      prints way,side,iterations,us an iteration: median of 9 solves, and the least
#include <cooperative_groups.h>
#include <cublas_v2.h>
#include <cusparse.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(int status, const char* what) {
  if (status != 0) {
    std::fprintf(stderr, "%s: %d\n", what, status);
    std::exit(1);
  }
}
#define CHECK(call) check(static_cast<int>(call), #call)

__global__ void divide(double* out, double* negative, const double* a, const double* b) {
  *out = *a / *b;
  if (negative) *negative = -*out;
}

static constexpr int kThreads = 256;

__device__ double block_sum(double v) {
  __shared__ double s[kThreads];
  __syncthreads();
  s[threadIdx.x] = v;
  for (int d = kThreads / 2; d > 0; d /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < d) s[threadIdx.x] += s[threadIdx.x + d];
  }
  __syncthreads();
  return s[0];
}

// The same bits in all blocks.
__device__ double grid_sum(double v, double* parts) {
  v = block_sum(v);
  if (threadIdx.x == 0) parts[blockIdx.x] = v;
  cooperative_groups::this_grid().sync();
  v = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) v += parts[i];
  return block_sum(v);
}

__global__ void __launch_bounds__(kThreads) persistent(int n, const int* ptr, const int* col, const double* val, double* x, double* r,
                                                       double* p, double* q, double* parts, int most, int* ran) {
  const int first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
  double s = 0;
  for (int i = first; i < n; i += stride) s += r[i] * r[i];
  double rr = grid_sum(s, parts + gridDim.x);
  int done = 0;
  while (done < most && (done == 0 || done % 2 == 1 || rr >= 1e-16)) {
    s = 0;
    for (int i = first; i < n; i += stride) {
      double sum = 0;
      for (int k = ptr[i]; k < ptr[i + 1]; ++k) sum += val[k] * p[col[k]];
      q[i] = sum;
      s += sum * p[i];
    }
    const double alpha = rr / grid_sum(s, parts);
    s = 0;
    for (int i = first; i < n; i += stride) {
      x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
      s += r[i] * r[i];
    }
    const double next = grid_sum(s, parts + gridDim.x), beta = next / rr;
    for (int i = first; i < n; i += stride) p[i] = r[i] + beta * p[i];
    rr = next;
    ++done;
    cooperative_groups::this_grid().sync();
  }
  if (first == 0) *ran = done;
}

template <class T>
static T* on_device(const std::vector<T>& from) {
  T* to = nullptr;
  CHECK(cudaMalloc(&to, from.size() * sizeof(T)));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

int main(int argc, char** argv) {
  cublasHandle_t blas;
  cusparseHandle_t sparse;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cublasCreate(&blas));
  CHECK(cusparseCreate(&sparse));
  CHECK(cublasSetStream(blas, stream));
  CHECK(cusparseSetStream(sparse, stream));
  CHECK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_DEVICE));
  CHECK(cusparseSetPointerMode(sparse, CUSPARSE_POINTER_MODE_DEVICE));
  for (int k = 1; k < argc; ++k) {
    const int side = std::atoi(argv[k]), n = side * side;
    std::vector<int> ptr{0}, col;
    std::vector<double> val, b(n), zero(n, 0.0);
    unsigned state = 1;
    double norm = 0;
    for (int i = 0; i < n; ++i) {
      const int x = i % side, y = i / side;
      const auto entry = [&](int j, double v) { col.push_back(j), val.push_back(v); };
      if (y > 0) entry(i - side, -1);
      if (x > 0) entry(i - 1, -1);
      entry(i, 4);
      if (x + 1 < side) entry(i + 1, -1);
      if (y + 1 < side) entry(i + side, -1);
      ptr.push_back(static_cast<int>(col.size()));
      state = state * 1664525u + 1013904223u;
      b[i] = state / 4294967296.0 - 0.5;
      norm += b[i] * b[i];
    }
    for (double& v : b) v /= std::sqrt(norm);
    int *d_ptr = on_device(ptr), *d_col = on_device(col);
    double *d_val = on_device(val), *d_b = on_device(b), *x = on_device(zero), *r = on_device(zero), *p = on_device(zero), *q = on_device(zero);
    // 0: 1.0, 1: 0.0, 2 and 3: r.r, 4: p.q, 5: alpha, 6: -alpha, 7: beta
    double* s = on_device(std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0});
    double* seen = nullptr;
    CHECK(cudaMallocHost(&seen, sizeof(double)));
    cusparseSpMatDescr_t a;
    cusparseDnVecDescr_t vp, vq;
    CHECK(cusparseCreateCsr(&a, n, n, static_cast<std::int64_t>(col.size()), d_ptr, d_col, d_val, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
    CHECK(cusparseCreateDnVec(&vp, n, p, CUDA_R_64F));
    CHECK(cusparseCreateDnVec(&vq, n, q, CUDA_R_64F));
    std::size_t bytes = 0;
    void* buffer = nullptr;
    CHECK(cusparseSpMV_bufferSize(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, &bytes));
    CHECK(cudaMalloc(&buffer, bytes + 1));
    CHECK(cusparseSpMV_preprocess(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, buffer));
    const auto iteration = [&](int i) {
      double *now = s + 2 + i % 2, *next = s + 3 - i % 2;
      CHECK(cusparseSpMV(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, buffer));
      CHECK(cublasDdot(blas, n, p, 1, q, 1, s + 4));
      divide<<<1, 1, 0, stream>>>(s + 5, s + 6, now, s + 4);
      CHECK(cublasDaxpy(blas, n, s + 5, p, 1, x, 1));
      CHECK(cublasDaxpy(blas, n, s + 6, q, 1, r, 1));
      CHECK(cublasDdot(blas, n, r, 1, r, 1, next));
      divide<<<1, 1, 0, stream>>>(s + 7, nullptr, next, now);
      CHECK(cublasDscal(blas, n, s + 7, p, 1));
      CHECK(cublasDaxpy(blas, n, s, r, 1, p, 1));
    };
    int most_blocks = 0, processors = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most_blocks, persistent, kThreads, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    double* parts = on_device(std::vector<double>(2 * most_blocks * processors));
    int* ran = on_device(std::vector<int>{0});
    for (const int each : {1, 2, most_blocks}) {  // blocks of a multiprocessor
      const int blocks = std::min((n + kThreads - 1) / kThreads, each * processors);
      std::vector<double> times;
      int iterations = 0, most = 10000;
      for (int turn = 0; turn < 10; ++turn) {
        CHECK(cudaMemcpy(x, zero.data(), n * sizeof(double), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(r, d_b, n * sizeof(double), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy(p, d_b, n * sizeof(double), cudaMemcpyDeviceToDevice));
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        void* given[] = {const_cast<int*>(&n), &d_ptr, &d_col, &d_val, &x, &r, &p, &q, &parts, &most, &ran};
        CHECK(cudaLaunchCooperativeKernel(persistent, dim3(blocks), dim3(kThreads), given, 0, stream));
        CHECK(cudaStreamSynchronize(stream));
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        CHECK(cudaMemcpy(&iterations, ran, sizeof(int), cudaMemcpyDeviceToHost));
        if (turn > 0) times.push_back(took.count() / iterations);
      }
      std::sort(times.begin(), times.end());
      std::printf("one cooperative kernel of %d blocks,%d,%d,%.3f,%.3f\n", blocks, side, iterations, times[times.size() / 2], times[0]);
    }
    for (const bool graph : {false, true}) {  // launches one by one, or two iterations as one graph
      cudaGraphExec_t two = nullptr;
      std::vector<double> times;
      int iterations = 0;
      for (int turn = 0; turn < 10; ++turn) {
        CHECK(cudaMemcpy(x, zero.data(), n * sizeof(double), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(r, d_b, n * sizeof(double), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy(p, d_b, n * sizeof(double), cudaMemcpyDeviceToDevice));
        CHECK(cudaDeviceSynchronize());
        CHECK(cublasDdot(blas, n, r, 1, r, 1, s + 2));
        if (graph && two == nullptr) {
          cudaGraph_t captured;
          CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
          iteration(0);
          iteration(1);
          CHECK(cudaStreamEndCapture(stream, &captured));
          CHECK(cudaGraphInstantiate(&two, captured, 0));
        }
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        for (iterations = 0; iterations < 10000;) {
          if (graph) {
            CHECK(cudaGraphLaunch(two, stream));
          } else {
            iteration(0);
            iteration(1);
          }
          iterations += 2;
          CHECK(cudaMemcpyAsync(seen, s + 2, sizeof(double), cudaMemcpyDeviceToHost, stream));
          CHECK(cudaStreamSynchronize(stream));
          if (*seen < 1e-16) break;
        }
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        if (turn > 0) times.push_back(took.count() / iterations);
      }
      std::sort(times.begin(), times.end());
      std::printf("%s,%d,%d,%.3f,%.3f\n", graph ? "cuSPARSE + cuBLAS in a graph" : "cuSPARSE + cuBLAS", side, iterations, times[times.size() / 2], times[0]);
      std::fflush(stdout);
    }
  }
}
