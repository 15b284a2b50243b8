// Conjugate gradients by cuSPARSE and cuBLAS, as they are written by hand: scalars stay on the device, and the host looks at the
// residual after a number of iterations, an even one, until it is at most 1e-8 of |b|. Beside them the same method as one
// cooperative kernel, whose blocks wait for each other three times in each iteration and which tests after every second one.
//
//   loops EVERY FOLDER      the system: FOLDER/row_ptr.bin and col.bin (int32), val.bin and b.bin (double); with FOLDER/diagonal.bin
//                           it is preconditioned by a product with that
//
// Prints way,iterations,us an iteration (median of 9 solves, and the least), and writes the solutions, FOLDER/x-NUMBER.bin.
#include <cooperative_groups.h>
#include <cublas_v2.h>
#include <cusparse.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
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

__global__ void multiply(int n, double* z, const double* d, const double* r) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = d[i] * r[i];
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
                                                       double* p, double* q, double* parts, int most, double bound,
                                                       int* ran) {
  const int first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
  double s = 0;
  for (int i = first; i < n; i += stride) s += r[i] * r[i];
  double rr = grid_sum(s, parts + gridDim.x);
  int done = 0;
  while (done < most && (done == 0 || done % 2 == 1 || rr >= bound)) {
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

template <class T>
static std::vector<T> of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<T> out(std::filesystem::file_size(path) / sizeof(T));
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(T)));
  check(file.good() ? 0 : 1, path.c_str());
  return out;
}

static cudaStream_t stream;
static cublasHandle_t blas;
static cusparseHandle_t sparse;

// A x = b on the device, and the vectors of an iteration. `z` is `r` without a preconditioner.
struct System {
  int n;
  int *ptr, *col;
  std::int64_t entries;
  double *val, *b, *diagonal = nullptr, *x, *r, *p, *q, *z;
  double bound;  // of r.r
  explicit System(const std::string& folder) {
    const auto rows = of_file<int>(folder + "/row_ptr.bin"), columns = of_file<int>(folder + "/col.bin");
    const auto right = of_file<double>(folder + "/b.bin");
    const std::vector<double> zero(right.size(), 0.0);
    n = static_cast<int>(right.size());
    entries = static_cast<std::int64_t>(columns.size());
    ptr = on_device(rows), col = on_device(columns), val = on_device(of_file<double>(folder + "/val.bin")), b = on_device(right);
    x = on_device(zero), r = on_device(zero), p = on_device(zero), q = on_device(zero), z = r;
    if (std::filesystem::exists(folder + "/diagonal.bin")) diagonal = on_device(of_file<double>(folder + "/diagonal.bin")), z = on_device(zero);
    bound = 0;
    for (const double v : right) bound += 1e-16 * v * v;
  }
  void precondition() const {
    if (diagonal != nullptr) multiply<<<(n + 255) / 256, 256, 0, stream>>>(n, z, diagonal, r);
  }
  void begin() const {
    CHECK(cudaMemsetAsync(x, 0, n * sizeof(double), stream));
    CHECK(cudaMemcpyAsync(r, b, n * sizeof(double), cudaMemcpyDeviceToDevice, stream));
    precondition();
    CHECK(cudaMemcpyAsync(p, z, n * sizeof(double), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
};

static std::string folder;

static void say(const char* way, const System& of, int iterations, std::vector<double> times) {
  static int number = 0;
  std::vector<double> x(of.n);
  CHECK(cudaMemcpy(x.data(), of.x, of.n * sizeof(double), cudaMemcpyDeviceToHost));
  std::ofstream file(folder + "/x-" + std::to_string(number++) + ".bin", std::ios::binary);
  file.write(reinterpret_cast<const char*>(x.data()), static_cast<std::streamsize>(x.size() * sizeof(double)));
  std::sort(times.begin(), times.end());
  std::printf("%s,%d,%.3f,%.3f\n", way, iterations, times[times.size() / 2], times[0]);
  std::fflush(stdout);
}

static void one_kernel(const System& of) {
  int most_blocks = 0, processors = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most_blocks, persistent, kThreads, 0));
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  double* parts = on_device(std::vector<double>(2 * most_blocks * processors));
  int* ran = on_device(std::vector<int>{0});
  for (const int each : {1, 2, most_blocks}) {  // blocks of a multiprocessor
    const int blocks = std::min((of.n + kThreads - 1) / kThreads, each * processors);
    std::vector<double> times;
    int iterations = 0, most = 10000;
    for (int turn = 0; turn < 10; ++turn) {
      of.begin();
      const auto begin = std::chrono::steady_clock::now();
      void* given[] = {const_cast<int*>(&of.n),      const_cast<int**>(&of.ptr),  const_cast<int**>(&of.col),  const_cast<double**>(&of.val),
                       const_cast<double**>(&of.x),  const_cast<double**>(&of.r), const_cast<double**>(&of.p), const_cast<double**>(&of.q),
                       &parts, &most, const_cast<double*>(&of.bound), &ran};
      CHECK(cudaLaunchCooperativeKernel(persistent, dim3(blocks), dim3(kThreads), given, 0, stream));
      CHECK(cudaStreamSynchronize(stream));
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      CHECK(cudaMemcpy(&iterations, ran, sizeof(int), cudaMemcpyDeviceToHost));
      if (turn > 0) times.push_back(took.count() / iterations);
    }
    say(("one cooperative kernel of " + std::to_string(blocks) + " blocks").c_str(), of, iterations, times);
  }
}

static void libraries(const System& of, int every, bool graph, cusparseSpMVAlg_t algorithm, const char* way) {
  // 0: 1.0, 1: 0.0, 2 and 3: r.z, 4: p.q, 5: alpha, 6: -alpha, 7: beta, 8: r.r
  double* s = on_device(std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0, 0});
  double* seen = nullptr;
  CHECK(cudaMallocHost(&seen, sizeof(double)));
  const int n = of.n;
  cusparseSpMatDescr_t a;
  cusparseDnVecDescr_t vp, vq;
  CHECK(cusparseCreateCsr(&a, n, n, of.entries, of.ptr, of.col, of.val, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  CHECK(cusparseCreateDnVec(&vp, n, of.p, CUDA_R_64F));
  CHECK(cusparseCreateDnVec(&vq, n, of.q, CUDA_R_64F));
  std::size_t bytes = 0;
  void* buffer = nullptr;
  CHECK(cusparseSpMV_bufferSize(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, algorithm, &bytes));
  CHECK(cudaMalloc(&buffer, bytes + 1));
  CHECK(cusparseSpMV_preprocess(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, algorithm, buffer));
  const auto iteration = [&](int i) {
    double *now = s + 2 + i % 2, *next = s + 3 - i % 2;
    CHECK(cusparseSpMV(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, s, a, vp, s + 1, vq, CUDA_R_64F, algorithm, buffer));
    CHECK(cublasDdot(blas, n, of.p, 1, of.q, 1, s + 4));
    divide<<<1, 1, 0, stream>>>(s + 5, s + 6, now, s + 4);
    CHECK(cublasDaxpy(blas, n, s + 5, of.p, 1, of.x, 1));
    CHECK(cublasDaxpy(blas, n, s + 6, of.q, 1, of.r, 1));
    of.precondition();
    CHECK(cublasDdot(blas, n, of.r, 1, of.z, 1, next));
    divide<<<1, 1, 0, stream>>>(s + 7, nullptr, next, now);
    CHECK(cublasDscal(blas, n, s + 7, of.p, 1));
    CHECK(cublasDaxpy(blas, n, s, of.z, 1, of.p, 1));
  };
  const auto several = [&] {
    for (int i = 0; i < every; ++i) iteration(i);
    if (of.diagonal != nullptr) CHECK(cublasDdot(blas, n, of.r, 1, of.r, 1, s + 8));
  };
  cudaGraphExec_t as_graph = nullptr;
  std::vector<double> times;
  int iterations = 0;
  for (int turn = 0; turn < 10; ++turn) {
    of.begin();
    CHECK(cublasDdot(blas, n, of.r, 1, of.z, 1, s + 2));
    if (graph && as_graph == nullptr) {
      cudaGraph_t captured;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
      several();
      CHECK(cudaStreamEndCapture(stream, &captured));
      CHECK(cudaGraphInstantiate(&as_graph, captured, 0));
    }
    CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    for (iterations = 0; iterations < 10000;) {
      if (graph) CHECK(cudaGraphLaunch(as_graph, stream));
      else several();
      iterations += every;
      CHECK(cudaMemcpyAsync(seen, of.diagonal != nullptr ? s + 8 : s + 2, sizeof(double), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      if (*seen < of.bound) break;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (turn > 0) times.push_back(took.count() / iterations);
  }
  say(way, of, iterations, times);
}

int main(int argc, char** argv) {
  check(argc == 3 ? 0 : 2, "usage: loops EVERY FOLDER");
  const int every = std::atoi(argv[1]);
  folder = argv[2];
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cublasCreate(&blas));
  CHECK(cusparseCreate(&sparse));
  CHECK(cublasSetStream(blas, stream));
  CHECK(cusparseSetStream(sparse, stream));
  CHECK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_DEVICE));
  CHECK(cusparseSetPointerMode(sparse, CUSPARSE_POINTER_MODE_DEVICE));
  const System of(folder);
  if (of.diagonal == nullptr && every == 2) one_kernel(of);
  libraries(of, every, false, CUSPARSE_SPMV_CSR_ALG1, "cuSPARSE + cuBLAS");
  libraries(of, every, true, CUSPARSE_SPMV_CSR_ALG1, "cuSPARSE + cuBLAS in a graph");
  libraries(of, every, true, CUSPARSE_SPMV_CSR_ALG2, "cuSPARSE (second algorithm) + cuBLAS in a graph");
}
