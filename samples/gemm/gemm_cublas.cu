// C = A B through cuBLAS, on the caller's stream, row-major: C is M x N, A is M x K, B is K x N. With `relu`, max(C, 0)
// by the epilogue of cuBLASLt: no kernel of its own.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

static constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // bytes

static void must(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "gemm_cublas.cu: cuBLAS: %s\n", cublasGetStatusString(status));
  std::exit(1);
}

// C = max(alpha A B + beta C, 0), A and B of elements `kind`. Row-major arrays are the transposes of column-major ones:
// C' = B' A'. With `of_device`, alpha and beta are on the GPU.
static void with_relu(cublasComputeType_t type, cudaDataType_t kind, float* C, const void* A, const void* B, int M, int N,
                      int K, const float* alpha, const float* beta, bool of_device, cudaStream_t stream) {
  static cublasLtHandle_t handle = nullptr;
  static cublasLtMatmulPreference_t preference = nullptr;
  static void* workspace = nullptr;
  if (handle == nullptr) {
    must(cublasLtCreate(&handle));
    must(cublasLtMatmulPreferenceCreate(&preference));
    must(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                              sizeof kWorkspace));
    if (cudaMalloc(&workspace, kWorkspace) != cudaSuccess) must(CUBLAS_STATUS_ALLOC_FAILED);
  }
  struct Chosen {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulHeuristicResult_t how = {};
  };
  static std::map<std::tuple<int, int, int, int, int>, Chosen> known;  // asking takes longer than a small product
  Chosen& chosen = known[{M, N, K, type, kind}];
  if (chosen.product == nullptr) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU;
    int found = 0;
    must(cublasLtMatmulDescCreate(&chosen.product, type, CUDA_R_32F));
    must(cublasLtMatmulDescSetAttribute(chosen.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    const cublasLtPointerMode_t where = of_device ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    must(cublasLtMatmulDescSetAttribute(chosen.product, CUBLASLT_MATMUL_DESC_POINTER_MODE, &where, sizeof where));
    must(cublasLtMatrixLayoutCreate(&chosen.a, kind, N, K, N));
    must(cublasLtMatrixLayoutCreate(&chosen.b, kind, K, M, K));
    must(cublasLtMatrixLayoutCreate(&chosen.c, CUDA_R_32F, N, M, N));
    must(cublasLtMatmulAlgoGetHeuristic(handle, chosen.product, chosen.a, chosen.b, chosen.c, chosen.c, preference, 1,
                                        &chosen.how, &found));
    if (found == 0) must(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  must(cublasLtMatmul(handle, chosen.product, alpha, B, chosen.a, A, chosen.b, beta, C, chosen.c, C, chosen.c,
                      &chosen.how.algo, workspace, kWorkspace, stream));
}

// The handle of a stream. It has a workspace of its own: without one a captured call allocates memory in the graph, whose
// edges cannot be changed then.
static cublasHandle_t handle_of(cudaStream_t stream) {
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

// C = alpha A B + beta C.
static void without_relu(cublasComputeType_t type, cudaDataType_t kind, float* C, const void* A, const void* B, int M,
                         int N, int K, const float* alpha, const float* beta, bool of_device, cudaStream_t stream) {
  cublasHandle_t handle = handle_of(stream);
  must(cublasSetPointerMode(handle, of_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST));
  must(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, alpha, B, kind, N, A, kind, K, beta, C, CUDA_R_32F, N, type,
                    CUBLAS_GEMM_DEFAULT));
}

// C = A B + beta C, or its maximum with 0.
static void multiply(cublasComputeType_t type, float* C, const float* A, const float* B, int M, int N, int K, float beta,
                     bool relu, cudaStream_t stream) {
  const float one = 1;
  (relu ? with_relu : without_relu)(type, CUDA_R_32F, C, A, B, M, N, K, &one, &beta, false, stream);
}

// In single precision: no tensor cores.
void gemm_cublas(float* C, const float* A, const float* B, int M, int N, int K, bool relu, cudaStream_t stream) {
  multiply(CUBLAS_COMPUTE_32F, C, A, B, M, N, K, 0, relu, stream);
}

// On tensor cores, elements rounded to TF32: 11 bits of the mantissa of 24.
void gemm_tensor(float* C, const float* A, const float* B, int M, int N, int K, bool relu, cudaStream_t stream) {
  multiply(CUBLAS_COMPUTE_32F_FAST_TF32, C, A, B, M, N, K, 0, relu, stream);
}

// `parts`: each element as TF32, then what is left of it.
static __global__ void split(float* parts, const float* whole, std::size_t size) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x) {
    const float high = __int_as_float(__float_as_int(whole[i]) & ~0x1fff);
    parts[i] = high;
    parts[size + i] = whole[i] - high;
  }
}

static unsigned blocks_of(std::size_t size) {
  const std::size_t blocks = (size + 255) / 256;
  return static_cast<unsigned>(blocks < 4096 ? blocks : 4096);
}

static void split(float* parts, const float* whole, std::size_t size, cudaStream_t stream) {
  split<<<blocks_of(size), 256, 0, stream>>>(parts, whole, size);
}

// On tensor cores with the accuracy of single precision: three of the four products of the parts of A and B, of which
// the largest is added last (Ootomo and Yokota, 2022: Recovering single precision accuracy from Tensor Cores).
void gemm_tensor_split(float* C, const float* A, const float* B, int M, int N, int K, bool relu, float* a_parts,
                       float* b_parts, cudaStream_t stream) {
  const std::size_t a_size = static_cast<std::size_t>(M) * K, b_size = static_cast<std::size_t>(K) * N;
  split(a_parts, A, a_size, stream);
  split(b_parts, B, b_size, stream);
  const auto type = CUBLAS_COMPUTE_32F_FAST_TF32;
  multiply(type, C, a_parts + a_size, b_parts, M, N, K, 0, false, stream);
  multiply(type, C, a_parts, b_parts + b_size, M, N, K, 1, false, stream);
  multiply(type, C, a_parts, b_parts, M, N, K, 1, relu, stream);
}

// The bits of the largest absolute value, which order as the values do: NaN last.
static __global__ void largest(unsigned* bits, const float* values, std::size_t size) {
  unsigned most = 0;
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x)
    most = max(most, __float_as_uint(values[i]) & 0x7fffffff);
  for (int lane = 16; lane > 0; lane /= 2) most = max(most, __shfl_xor_sync(~0u, most, lane));
  if (threadIdx.x % 32 == 0) atomicMax(bits, most);
}

// The power of two by which values of at most this size are multiplied to be below 2^15, and half precision has no
// overflow; 1 for zeros. It stays between 2^-100 and 2^100, so that the inverses are numbers too.
static __device__ float scale_of(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 23) - 126;  // below 2^exponent
  return bits == 0 ? 1 : ldexpf(1, min(100, max(-100, 15 - exponent)));
}

static __global__ void halve(__half* halves, const float* values, std::size_t size, const unsigned* bits) {
  const float scale = scale_of(*bits);
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x)
    halves[i] = __float2half_rn(values[i] * scale);
}

// `factors`: what the product is multiplied by, and 0.
static __global__ void undo(float* factors, const unsigned* bits) {
  factors[0] = 1 / scale_of(bits[0]) / scale_of(bits[1]);
  factors[1] = 0;
}

static const __half* halves_of(float* space, const float* values, std::size_t size, unsigned* bits, cudaStream_t stream) {
  __half* const halves = reinterpret_cast<__half*>(space);
  largest<<<blocks_of(size), 256, 0, stream>>>(bits, values, size);
  halve<<<blocks_of(size), 256, 0, stream>>>(halves, values, size, bits);
  return halves;
}

// On tensor cores, elements rounded to half precision (11 bits, as TF32, but of fewer exponents: each matrix is scaled,
// and elements below 2^-29 of the largest one lose bits), sums in single precision. `numbers`: space for four.
void gemm_half(float* C, const float* A, const float* B, int M, int N, int K, bool relu, float* a_half, float* b_half,
               float* numbers, cudaStream_t stream) {
  unsigned* const bits = reinterpret_cast<unsigned*>(numbers + 2);
  if (cudaMemsetAsync(bits, 0, 2 * sizeof *bits, stream) != cudaSuccess) must(CUBLAS_STATUS_INTERNAL_ERROR);
  const __half* const a = halves_of(a_half, A, static_cast<std::size_t>(M) * K, bits, stream);
  const __half* const b = halves_of(b_half, B, static_cast<std::size_t>(K) * N, bits + 1, stream);
  undo<<<1, 1, 0, stream>>>(numbers, bits);
  (relu ? with_relu : without_relu)(CUBLAS_COMPUTE_32F, CUDA_R_16F, C, a, b, M, N, K, numbers, numbers + 1, true, stream);
}
