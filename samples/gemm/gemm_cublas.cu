// C = A B through cuBLAS, on the caller's stream, row-major: C is M x N, A is M x K, B is K x N. With `relu`, max(C, 0)
// by the epilogue of cuBLASLt: no kernel of its own.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

static void must(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "gemm_cublas.cu: cuBLAS: %s\n", cublasGetStatusString(status));
  std::exit(1);
}

// C = max(A B + beta C, 0). Row-major arrays are the transposes of column-major ones: C' = B' A'.
static void with_relu(cublasComputeType_t type, float* C, const float* A, const float* B, int M, int N, int K, float beta,
                      cudaStream_t stream) {
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
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
  static std::map<std::tuple<int, int, int, int>, Chosen> known;  // asking takes longer than a small product
  Chosen& chosen = known[{M, N, K, type}];
  if (chosen.product == nullptr) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU;
    int found = 0;
    must(cublasLtMatmulDescCreate(&chosen.product, type, CUDA_R_32F));
    must(cublasLtMatmulDescSetAttribute(chosen.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    must(cublasLtMatrixLayoutCreate(&chosen.a, CUDA_R_32F, N, K, N));
    must(cublasLtMatrixLayoutCreate(&chosen.b, CUDA_R_32F, K, M, K));
    must(cublasLtMatrixLayoutCreate(&chosen.c, CUDA_R_32F, N, M, N));
    must(cublasLtMatmulAlgoGetHeuristic(handle, chosen.product, chosen.a, chosen.b, chosen.c, chosen.c, preference, 1,
                                        &chosen.how, &found));
    if (found == 0) must(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const float one = 1;
  must(cublasLtMatmul(handle, chosen.product, &one, B, chosen.a, A, chosen.b, &beta, C, chosen.c, C, chosen.c,
                      &chosen.how.algo, workspace, kWorkspace, stream));
}

// C = A B + beta C.
static void multiply(cublasComputeType_t type, float* C, const float* A, const float* B, int M, int N, int K, float beta,
                     cudaStream_t stream) {
  static cublasHandle_t handle = nullptr;
  if (handle == nullptr) must(cublasCreate(&handle));
  must(cublasSetStream(handle, stream));
  const float one = 1;
  must(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, CUDA_R_32F, N, A, CUDA_R_32F, K, &beta, C,
                    CUDA_R_32F, N, type, CUBLAS_GEMM_DEFAULT));
}

// In single precision: no tensor cores.
void gemm_cublas(float* C, const float* A, const float* B, int M, int N, int K, bool relu, cudaStream_t stream) {
  (relu ? with_relu : multiply)(CUBLAS_COMPUTE_32F, C, A, B, M, N, K, 0, stream);
}

// On tensor cores, elements rounded to TF32: 11 bits of the mantissa of 24.
void gemm_tensor(float* C, const float* A, const float* B, int M, int N, int K, bool relu, cudaStream_t stream) {
  (relu ? with_relu : multiply)(CUBLAS_COMPUTE_32F_FAST_TF32, C, A, B, M, N, K, 0, stream);
}

// `parts`: each element as TF32, then what is left of it.
static __global__ void split(float* parts, const float* whole, std::size_t size) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x) {
    const float high = __int_as_float(__float_as_int(whole[i]) & ~0x1fff);
    parts[i] = high;
    parts[size + i] = whole[i] - high;
  }
}

static void split(float* parts, const float* whole, std::size_t size, cudaStream_t stream) {
  const std::size_t blocks = (size + 255) / 256;
  split<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(parts, whole, size);
}

// On tensor cores with the accuracy of single precision: three of the four products of the parts of A and B, of which
// the largest is added last (Ootomo and Yokota, 2022: Recovering single precision accuracy from Tensor Cores).
void gemm_tensor_split(float* C, const float* A, const float* B, int M, int N, int K, bool relu, float* a_parts,
                       float* b_parts, cudaStream_t stream) {
  const std::size_t a_size = static_cast<std::size_t>(M) * K, b_size = static_cast<std::size_t>(K) * N;
  split(a_parts, A, a_size, stream);
  split(b_parts, B, b_size, stream);
  const auto type = CUBLAS_COMPUTE_32F_FAST_TF32;
  multiply(type, C, a_parts + a_size, b_parts, M, N, K, 0, stream);
  multiply(type, C, a_parts, b_parts + b_size, M, N, K, 1, stream);
  (relu ? with_relu : multiply)(type, C, a_parts, b_parts, M, N, K, 1, stream);
}
