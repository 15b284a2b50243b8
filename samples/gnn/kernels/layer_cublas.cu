// A layer on the GPU with cuBLAS. Parameters as in layer.dag.
#include "layer.cuh"

#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <map>

static void must(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "layer_cublas.cu: cuBLAS: %s\n", cublasGetStatusString(status));
  std::exit(1);
}

// The handle of a stream. It has a workspace of its own: without one a captured call allocates memory in the graph, whose
// edges cannot be changed then.
static cublasHandle_t handle_of(cudaStream_t stream) {
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  static std::map<cudaStream_t, cublasHandle_t> known;
  cublasHandle_t& handle = known[stream];
  if (handle == nullptr) {
    void* workspace = nullptr;
    if (cudaMalloc(&workspace, kWorkspace) != cudaSuccess) must(CUBLAS_STATUS_ALLOC_FAILED);
    must(cublasCreate(&handle));
    must(cublasSetStream(handle, stream));
    must(cublasSetWorkspace(handle, workspace, kWorkspace));
  }
  return handle;
}

// c = a b + add * c; rows of b are ld apart. Row-major arrays are the transposes of column-major ones: c' = b' a'.
static void multiply(float* c, const float* a, const float* b, int n, int K, int F, int ld, float add,
                     cudaStream_t stream) {
  const float one = 1;
  must(cublasSgemm(handle_of(stream), CUBLAS_OP_N, CUBLAS_OP_N, F, n, K, &one, b, ld, a, K, &add, c, F));
}

static __global__ void rectify(float* c, std::size_t size) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x)
    c[i] = c[i] < 0 ? 0 : c[i];
}

void gpu_transform_cublas(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val,
                          int n, int, int K, int F, int own, bool relu, double, float* t, cudaStream_t stream) {
  const int wide = (1 + own) * F;
  multiply(t, T, w, n, K, wide, wide, 0, stream);
  aggregate(H, own ? t : nullptr, t + own * F, wide, ptr, col, val, n, F, relu, stream);
}

void gpu_aggregate_cublas(float* H, const float* T, const float* w, const int* ptr, const int* col, const float* val,
                          int n, int, int K, int F, int own, bool relu, double, float* t, cudaStream_t stream) {
  const int wide = (1 + own) * F;
  aggregate(t, nullptr, T, K, ptr, col, val, n, K, false, stream);
  if (own) multiply(H, T, w, n, K, F, wide, 0, stream);
  multiply(H, t, w + own * F, n, K, F, wide, own ? 1 : 0, stream);
  if (!relu) return;
  const std::size_t size = std::size_t(n) * F, blocks = (size + 255) / 256;
  rectify<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(H, size);
}
