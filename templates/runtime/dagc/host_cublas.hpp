// Host target: the part of cuBLAS that programs use most, of single and double precision: handles, vectors, and products
// with matrices stored by columns. Sums are in the order of the elements, so last digits differ from those of a GPU.
#pragma once

#include <algorithm>
#include <cmath>

#include "target.hpp"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
};
using cublasHandle_t = cublasContext*;

inline const char* cublasGetStatusString(cublasStatus_t status) { return status ? "a cuBLAS error" : "success"; }
inline const char* cublasGetStatusName(cublasStatus_t status) { return status ? "CUBLAS_STATUS_ERROR" : "CUBLAS_STATUS_SUCCESS"; }
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

namespace dagc::host::blas {

// A scalar that the caller gives: read now from the host, or when the work runs from the device.
template <class T>
struct Given {
  Given(cublasHandle_t handle, const T* at) : at_(handle->mode == CUBLAS_POINTER_MODE_HOST ? nullptr : at), now_(at_ ? T() : *at) {}
  T get() const { return at_ ? *at_ : now_; }

 private:
  const T* at_;
  T now_;
};

template <class F>
cublasStatus_t run(cublasHandle_t handle, const char* name, const char* file, int line, F work) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (on_library_call != nullptr) on_library_call(name, file, line);
  return issue(handle->stream, std::move(work)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// A number for the caller: on the host it is there when the call returns.
template <class F>
cublasStatus_t reduce(cublasHandle_t handle, const char* name, const char* file, int line, F work) {
  const cublasStatus_t status = run(handle, name, file, line, work);
  if (status == CUBLAS_STATUS_SUCCESS && handle->mode == CUBLAS_POINTER_MODE_HOST) cudaStreamSynchronize(handle->stream);
  return status;
}

// The first element of a vector with this step, which may be negative.
template <class T>
T* first(T* x, int n, int step) {
  return step < 0 ? x - static_cast<long>(n - 1) * step : x;
}

// The root of the sum of the squares, without overflow or underflow of a square: elements are scaled by a power of two.
template <class T>
T norm(int n, const T* x, int step) {
  T most = 0, sum = 0;
  for (long i = 0; i < n; ++i) most = std::max(most, std::abs(x[i * step]));
  const int scale = most > 0 && std::isfinite(most) ? std::ilogb(most) : 0;
  for (long i = 0; i < n; ++i) {
    const T scaled = std::scalbn(x[i * step], -scale);
    sum += scaled * scaled;
  }
  return std::scalbn(std::sqrt(sum), scale);
}
inline long at(bool transposed, long row, long column, long lead) { return transposed ? column + row * lead : row + column * lead; }

}  // namespace dagc::host::blas

#define DAGC_BLAS_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define DAGC_BLAS(P, T)                                                                                                    \
  inline cublasStatus_t cublas##P##axpy(cublasHandle_t h, int n, const T* a, const T* x, int ix, T* y, int iy,             \
                                        DAGC_BLAS_PLACE) {                                                                 \
    return dagc::host::blas::run(h, "cublas" #P "axpy", file, line, [=, a = dagc::host::blas::Given<T>(h, a)] {            \
      const T* from = dagc::host::blas::first(x, n, ix);                                                                   \
      T* to = dagc::host::blas::first(y, n, iy);                                                                           \
      for (long i = 0; i < n; ++i) to[i * iy] += a.get() * from[i * ix];                                                   \
    });                                                                                                                    \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##scal(cublasHandle_t h, int n, const T* a, T* x, int ix, DAGC_BLAS_PLACE) {              \
    return dagc::host::blas::run(h, "cublas" #P "scal", file, line, [=, a = dagc::host::blas::Given<T>(h, a)] {            \
      for (long i = 0; i < n; ++i) x[i * ix] *= a.get();                                                                   \
    });                                                                                                                    \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##copy(cublasHandle_t h, int n, const T* x, int ix, T* y, int iy, DAGC_BLAS_PLACE) {      \
    return dagc::host::blas::run(h, "cublas" #P "copy", file, line, [=] {                                                  \
      const T* from = dagc::host::blas::first(x, n, ix);                                                                   \
      T* to = dagc::host::blas::first(y, n, iy);                                                                           \
      for (long i = 0; i < n; ++i) to[i * iy] = from[i * ix];                                                              \
    });                                                                                                                    \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##dot(cublasHandle_t h, int n, const T* x, int ix, const T* y, int iy, T* out,            \
                                       DAGC_BLAS_PLACE) {                                                                  \
    return dagc::host::blas::reduce(h, "cublas" #P "dot", file, line, [=] {                                                \
      const T *a = dagc::host::blas::first(x, n, ix), *b = dagc::host::blas::first(y, n, iy);                              \
      T sum = 0;                                                                                                           \
      for (long i = 0; i < n; ++i) sum += a[i * ix] * b[i * iy];                                                           \
      *out = sum;                                                                                                          \
    });                                                                                                                    \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##nrm2(cublasHandle_t h, int n, const T* x, int ix, T* out, DAGC_BLAS_PLACE) {            \
    return dagc::host::blas::reduce(h, "cublas" #P "nrm2", file, line, [=] { *out = dagc::host::blas::norm(n, x, ix); });  \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##asum(cublasHandle_t h, int n, const T* x, int ix, T* out, DAGC_BLAS_PLACE) {            \
    return dagc::host::blas::reduce(h, "cublas" #P "asum", file, line, [=] {                                               \
      T sum = 0;                                                                                                           \
      for (long i = 0; i < n; ++i) sum += std::abs(x[i * ix]);                                                             \
      *out = sum;                                                                                                          \
    });                                                                                                                    \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, \
                                        const T* alpha, const T* a, int la, const T* b, int lb, const T* beta, T* c,       \
                                        int lc, DAGC_BLAS_PLACE) {                                                         \
    return dagc::host::blas::run(                                                                                          \
        h, "cublas" #P "gemm", file, line,                                                                                 \
        [=, alpha = dagc::host::blas::Given<T>(h, alpha), beta = dagc::host::blas::Given<T>(h, beta)] {                    \
          for (long j = 0; j < n; ++j)                                                                                     \
            for (long i = 0; i < m; ++i) {                                                                                 \
              T sum = 0;                                                                                                   \
              for (long l = 0; l < k; ++l)                                                                                 \
                sum += a[dagc::host::blas::at(ta, i, l, la)] * b[dagc::host::blas::at(tb, l, j, lb)];                      \
              T& to = c[i + j * lc];                                                                                       \
              to = alpha.get() * sum + (beta.get() == T(0) ? T(0) : beta.get() * to);                                      \
            }                                                                                                              \
        });                                                                                                                \
  }                                                                                                                        \
  inline cublasStatus_t cublas##P##gemv(cublasHandle_t h, cublasOperation_t ta, int m, int n, const T* alpha, const T* a,  \
                                        int la, const T* x, int ix, const T* beta, T* y, int iy, DAGC_BLAS_PLACE) {        \
    return dagc::host::blas::run(                                                                                          \
        h, "cublas" #P "gemv", file, line,                                                                                 \
        [=, alpha = dagc::host::blas::Given<T>(h, alpha), beta = dagc::host::blas::Given<T>(h, beta)] {                    \
          const long rows = ta ? n : m, columns = ta ? m : n;                                                              \
          const T* from = dagc::host::blas::first(x, static_cast<int>(columns), ix);                                       \
          T* out = dagc::host::blas::first(y, static_cast<int>(rows), iy);                                                 \
          for (long i = 0; i < rows; ++i) {                                                                                \
            T sum = 0;                                                                                                     \
            for (long l = 0; l < columns; ++l) sum += a[dagc::host::blas::at(ta, i, l, la)] * from[l * ix];                \
            T& to = out[i * iy];                                                                                           \
            to = alpha.get() * sum + (beta.get() == T(0) ? T(0) : beta.get() * to);                                        \
          }                                                                                                                \
        });                                                                                                                \
  }

DAGC_BLAS(S, float)
DAGC_BLAS(D, double)
#undef DAGC_BLAS
#undef DAGC_BLAS_PLACE
