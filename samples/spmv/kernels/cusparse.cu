// y = A x by cuSPARSE, with its CSR algorithms 1 and 2, preprocessed (cusparseSpMV_preprocess, CUDA 12.4 or newer).
//
// A handle and descriptors cannot lie in scratch, so they are kept here, found by the address of the scratch of their op. They
// live until the program ends.
#include <cuda_runtime.h>
#include <cusparse.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace {

#define CHECK(call)                                                                                       \
  do {                                                                                                    \
    const cusparseStatus_t status = (call);                                                               \
    if (status != CUSPARSE_STATUS_SUCCESS) {                                                              \
      std::fprintf(stderr, "%s:%d: cuSPARSE: %s\n", __FILE__, __LINE__, cusparseGetErrorString(status)); \
      std::abort();                                                                                       \
    }                                                                                                     \
  } while (0)

struct State {
  cusparseHandle_t handle = nullptr;
  cusparseSpMatDescr_t matrix = nullptr;
  cusparseDnVecDescr_t x = nullptr, y = nullptr;
  void* buffer = nullptr;
};

// Of the op whose scratch this is. References stay valid: a map does not move its elements.
State& state_of(const void* scratch) {
  static std::mutex mutex;
  static std::map<const void*, State> states;
  const std::lock_guard<std::mutex> lock(mutex);
  return states[scratch];
}

const float kOne = 1, kZero = 0;

void prepare(const int* row_ptr, const int* col, const float* val, int n, int cols, int nnz, unsigned char* buffer,
             cusparseSpMVAlg_t algorithm, cudaStream_t stream) {
  State& s = state_of(buffer);
  if (s.handle == nullptr) CHECK(cusparseCreate(&s.handle));
  CHECK(cusparseSetStream(s.handle, stream));
  if (s.matrix != nullptr) {  // prepared again, for other arrays
    CHECK(cusparseDestroySpMat(s.matrix));
    CHECK(cusparseDestroyDnVec(s.x));
    CHECK(cusparseDestroyDnVec(s.y));
    if (s.buffer != buffer) cudaFree(s.buffer);
  }
  CHECK(cusparseCreateCsr(&s.matrix, n, cols, nnz, const_cast<int*>(row_ptr), const_cast<int*>(col), const_cast<float*>(val),
                          CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  // The vectors are named with each product; here, any address will do.
  CHECK(cusparseCreateDnVec(&s.x, cols, buffer, CUDA_R_32F));
  CHECK(cusparseCreateDnVec(&s.y, n, buffer, CUDA_R_32F));
  std::size_t bytes = 0;
  CHECK(cusparseSpMV_bufferSize(s.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &kOne, s.matrix, s.x, &kZero, s.y, CUDA_R_32F,
                                algorithm, &bytes));
  s.buffer = buffer;
  // The scratch suffices for CUDA 12 and 13; another version may want more.
  if (bytes > 65536 + 2 * (std::size_t(n) + nnz) && cudaMalloc(&s.buffer, bytes) != cudaSuccess) {
    std::fprintf(stderr, "%s:%d: cuSPARSE: no memory for a buffer of %zu bytes\n", __FILE__, __LINE__, bytes);
    std::abort();
  }
  CHECK(cusparseSpMV_preprocess(s.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &kOne, s.matrix, s.x, &kZero, s.y, CUDA_R_32F,
                                algorithm, s.buffer));
}

void multiply(float* y, const float* x, unsigned char* buffer, cusparseSpMVAlg_t algorithm, cudaStream_t stream) {
  State& s = state_of(buffer);
  CHECK(cusparseSetStream(s.handle, stream));
  CHECK(cusparseDnVecSetValues(s.x, const_cast<float*>(x)));
  CHECK(cusparseDnVecSetValues(s.y, y));
  CHECK(cusparseSpMV(s.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &kOne, s.matrix, s.x, &kZero, s.y, CUDA_R_32F, algorithm,
                     s.buffer));
}

}  // namespace

void cusparse1_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int cols, int nnz,
                       unsigned char* buffer, cudaStream_t stream) {
  prepare(row_ptr, col, val, n, cols, nnz, buffer, CUSPARSE_SPMV_CSR_ALG1, stream);
}
void cusparse1_multiply(float* y, const int*, const int*, const float*, const float* x, int, int, int, unsigned char* buffer,
                        cudaStream_t stream) {
  multiply(y, x, buffer, CUSPARSE_SPMV_CSR_ALG1, stream);
}
void cusparse2_prepare(float*, const int* row_ptr, const int* col, const float* val, const float*, int n, int cols, int nnz,
                       unsigned char* buffer, cudaStream_t stream) {
  prepare(row_ptr, col, val, n, cols, nnz, buffer, CUSPARSE_SPMV_CSR_ALG2, stream);
}
void cusparse2_multiply(float* y, const int*, const int*, const float*, const float* x, int, int, int, unsigned char* buffer,
                        cudaStream_t stream) {
  multiply(y, x, buffer, CUSPARSE_SPMV_CSR_ALG2, stream);
}
