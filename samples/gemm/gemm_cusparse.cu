// C = A B through cuSPARSE, on the caller's stream, row-major: C is M x N, A is M x K, B is K x N. A is written in CSR
// into ptr, col and val first. With `relu`, max(C, 0) by a kernel of its own: cuSPARSE fuses none.
#include <cusparse.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

static void must(cusparseStatus_t status) {
  if (status == CUSPARSE_STATUS_SUCCESS) return;
  std::fprintf(stderr, "gemm_cusparse.cu: cuSPARSE: %s\n", cusparseGetErrorString(status));
  std::exit(1);
}

// Memory that only grows: allocating waits for the device.
static void* room(std::size_t bytes) {
  static void* memory = nullptr;
  static std::size_t size = 0;
  if (bytes > size) {
    cudaFree(memory);
    if (cudaMalloc(&memory, bytes) != cudaSuccess) must(CUSPARSE_STATUS_ALLOC_FAILED);
    size = bytes;
  }
  return memory;
}

static __global__ void rectify(float* C, std::size_t size) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < size; i += std::size_t{256} * gridDim.x)
    C[i] = C[i] < 0 ? 0 : C[i];
}

void gemm_cusparse(float* C, const float* A, const float* B, int M, int N, int K, bool relu, int* ptr, int* col,
                   float* val, cudaStream_t stream) {
  static cusparseHandle_t handle = nullptr;
  if (handle == nullptr) must(cusparseCreate(&handle));
  must(cusparseSetStream(handle, stream));
  const float one = 1, zero = 0;
  cusparseDnMatDescr_t a, b, c;
  cusparseSpMatDescr_t csr;
  must(cusparseCreateDnMat(&a, M, K, K, const_cast<float*>(A), CUDA_R_32F, CUSPARSE_ORDER_ROW));
  must(cusparseCreateDnMat(&b, K, N, N, const_cast<float*>(B), CUDA_R_32F, CUSPARSE_ORDER_ROW));
  must(cusparseCreateDnMat(&c, M, N, N, C, CUDA_R_32F, CUSPARSE_ORDER_ROW));
  must(cusparseCreateCsr(&csr, M, K, 0, ptr, nullptr, nullptr, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                         CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  std::size_t bytes = 0;
  must(cusparseDenseToSparse_bufferSize(handle, a, csr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
  must(cusparseDenseToSparse_analysis(handle, a, csr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, room(bytes)));
  must(cusparseCsrSetPointers(csr, ptr, col, val));
  must(cusparseDenseToSparse_convert(handle, a, csr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, room(bytes)));
  must(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, csr, b,
                               &zero, c, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, &bytes));
  must(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, csr, b, &zero, c,
                    CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, room(bytes)));
  if (relu) {
    const std::size_t size = std::size_t(M) * N, blocks = (size + 255) / 256;
    rectify<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(C, size);
  }
  must(cusparseDestroySpMat(csr));
  must(cusparseDestroyDnMat(a));
  must(cusparseDestroyDnMat(b));
  must(cusparseDestroyDnMat(c));
}
