// C = A B through cuBLAS, on the caller's stream, row-major: C is M x N, A is M x K, B is K x N. With `relu`, max(C, 0)
// by the epilogue of cuBLASLt: one kernel.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

static void must(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "gemm_cublas.cpp: cuBLAS: %s\n", cublasGetStatusString(status));
  std::exit(1);
}

// Row-major arrays are the transposes of column-major ones: C' = B' A'.
static void with_relu(float* C, const float* A, const float* B, int M, int N, int K, cudaStream_t stream) {
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  static cublasLtHandle_t handle = nullptr;
  static cublasLtMatmulDesc_t product = nullptr;
  static cublasLtMatmulPreference_t preference = nullptr;
  static void* workspace = nullptr;
  if (handle == nullptr) {
    must(cublasLtCreate(&handle));
    must(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU;
    must(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    must(cublasLtMatmulPreferenceCreate(&preference));
    must(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                              sizeof kWorkspace));
    if (cudaMalloc(&workspace, kWorkspace) != cudaSuccess) must(CUBLAS_STATUS_ALLOC_FAILED);
  }
  struct Chosen {
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulHeuristicResult_t how = {};
  };
  static std::map<std::tuple<int, int, int>, Chosen> known;  // asking takes longer than a small product
  Chosen& chosen = known[{M, N, K}];
  if (chosen.a == nullptr) {
    int found = 0;
    must(cublasLtMatrixLayoutCreate(&chosen.a, CUDA_R_32F, N, K, N));
    must(cublasLtMatrixLayoutCreate(&chosen.b, CUDA_R_32F, K, M, K));
    must(cublasLtMatrixLayoutCreate(&chosen.c, CUDA_R_32F, N, M, N));
    must(cublasLtMatmulAlgoGetHeuristic(handle, product, chosen.a, chosen.b, chosen.c, chosen.c, preference, 1,
                                        &chosen.how, &found));
    if (found == 0) must(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const float one = 1, zero = 0;
  must(cublasLtMatmul(handle, product, &one, B, chosen.a, A, chosen.b, &zero, C, chosen.c, C, chosen.c,
                      &chosen.how.algo, workspace, kWorkspace, stream));
}

void gemm_cublas(float* C, const float* A, const float* B, int M, int N, int K, bool relu, cudaStream_t stream) {
  if (relu) return with_relu(C, A, B, M, N, K, stream);
  static cublasHandle_t handle = nullptr;
  if (handle == nullptr) must(cublasCreate(&handle));
  must(cublasSetStream(handle, stream));
  const float one = 1, zero = 0;
  must(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, N, A, K, &zero, C, N));
}
