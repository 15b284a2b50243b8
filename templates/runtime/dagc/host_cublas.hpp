// Host target: the part of cuBLAS that programs use most, of single and double precision: handles, vectors, and products
// with matrices stored by columns. Sums are in the order of the elements, so last digits differ from those of a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "target.hpp"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
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
inline cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->mode;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
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
cublasStatus_t run(cublasHandle_t handle, F work) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return issue(handle->stream, std::move(work)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// A number for the caller: on the host it is there when the call returns.
template <class F>
cublasStatus_t reduce(cublasHandle_t handle, F work) {
  const cublasStatus_t status = run(handle, work);
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

template <class T>
cublasStatus_t axpy(cublasHandle_t h, int n, const T* alpha, const T* x, int incx, T* y, int incy) {
  return run(h, [=, alpha = Given<T>(h, alpha)] {
    const T* from = first(x, n, incx);
    T* to = first(y, n, incy);
    for (long i = 0; i < n; ++i) to[i * incy] += alpha.get() * from[i * incx];
  });
}
template <class T>
cublasStatus_t scal(cublasHandle_t h, int n, const T* alpha, T* x, int incx) {
  return run(h, [=, alpha = Given<T>(h, alpha)] {
    for (long i = 0; i < n; ++i) x[i * incx] *= alpha.get();
  });
}
template <class T>
cublasStatus_t copy(cublasHandle_t h, int n, const T* x, int incx, T* y, int incy) {
  return run(h, [=] {
    const T* from = first(x, n, incx);
    T* to = first(y, n, incy);
    for (long i = 0; i < n; ++i) to[i * incy] = from[i * incx];
  });
}
template <class T>
cublasStatus_t swap(cublasHandle_t h, int n, T* x, int incx, T* y, int incy) {
  return run(h, [=] {
    T *one = first(x, n, incx), *other = first(y, n, incy);
    for (long i = 0; i < n; ++i) std::swap(one[i * incx], other[i * incy]);
  });
}
template <class T>
cublasStatus_t dot(cublasHandle_t h, int n, const T* x, int incx, const T* y, int incy, T* result) {
  return reduce(h, [=] {
    const T *a = first(x, n, incx), *b = first(y, n, incy);
    T sum = 0;
    for (long i = 0; i < n; ++i) sum += a[i * incx] * b[i * incy];
    *result = sum;
  });
}
template <class T>
cublasStatus_t nrm2(cublasHandle_t h, int n, const T* x, int incx, T* result) {
  return reduce(h, [=] { *result = norm(n, x, incx); });
}
template <class T>
cublasStatus_t asum(cublasHandle_t h, int n, const T* x, int incx, T* result) {
  return reduce(h, [=] {
    T sum = 0;
    for (long i = 0; i < n; ++i) sum += std::abs(x[i * incx]);
    *result = sum;
  });
}
template <class T>
cublasStatus_t amax(cublasHandle_t h, int n, const T* x, int incx, int* result) {
  return reduce(h, [=] {  // the first one, from 1 on
    long most = 0;
    for (long i = 1; i < n; ++i)
      if (std::abs(x[i * incx]) > std::abs(x[most * incx])) most = i;
    *result = n > 0 ? static_cast<int>(most) + 1 : 0;
  });
}
// alpha A x + beta y, whose elements of A are `a(row, column)`.
template <class T, class Element>
cublasStatus_t times_vector(cublasHandle_t h, long rows, long columns, const T* alpha, const T* x, int incx, const T* beta,
                            T* y, int incy, Element a) {
  return run(h, [=, alpha = Given<T>(h, alpha), beta = Given<T>(h, beta)] {
    const T* from = first(x, static_cast<int>(columns), incx);
    T* out = first(y, static_cast<int>(rows), incy);
    for (long i = 0; i < rows; ++i) {
      T sum = 0;
      for (long l = 0; l < columns; ++l) sum += a(i, l) * from[l * incx];
      T& to = out[i * incy];
      to = alpha.get() * sum + (beta.get() == T(0) ? T(0) : beta.get() * to);
    }
  });
}
template <class T>
cublasStatus_t gemv(cublasHandle_t h, cublasOperation_t trans, int m, int n, const T* alpha, const T* a, int lda, const T* x,
                    int incx, const T* beta, T* y, int incy) {
  const auto element = [=](long row, long column) { return a[at(trans, row, column, lda)]; };
  return times_vector(h, trans ? n : m, trans ? m : n, alpha, x, incx, beta, y, incy, element);
}
template <class T>
cublasStatus_t symv(cublasHandle_t h, cublasFillMode_t uplo, int n, const T* alpha, const T* a, int lda, const T* x, int incx,
                    const T* beta, T* y, int incy) {
  const bool upper = uplo == CUBLAS_FILL_MODE_UPPER;
  const auto element = [=](long row, long column) { return a[at((row > column) == upper, row, column, lda)]; };
  return times_vector(h, n, n, alpha, x, incx, beta, y, incy, element);
}
template <class T>
cublasStatus_t ger(cublasHandle_t h, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* a, int lda) {
  return run(h, [=, alpha = Given<T>(h, alpha)] {
    const T *rows = first(x, m, incx), *columns = first(y, n, incy);
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < m; ++i) a[i + j * lda] += alpha.get() * rows[i * incx] * columns[j * incy];
  });
}
template <class T>
cublasStatus_t gemm(cublasHandle_t h, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const T* alpha,
                    const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {
  return run(h, [=, alpha = Given<T>(h, alpha), beta = Given<T>(h, beta)] {
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < m; ++i) {
        T sum = 0;
        for (long l = 0; l < k; ++l) sum += a[at(transa, i, l, lda)] * b[at(transb, l, j, ldb)];
        T& to = c[i + j * ldc];
        to = alpha.get() * sum + (beta.get() == T(0) ? T(0) : beta.get() * to);
      }
  });
}
template <class T>
cublasStatus_t geam(cublasHandle_t h, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const T* alpha, const T* a,
                    int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {
  return run(h, [=, alpha = Given<T>(h, alpha), beta = Given<T>(h, beta)] {
    const auto term = [](T factor, const T* from, long place) { return factor == T(0) ? T(0) : factor * from[place]; };
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < m; ++i)
        c[i + j * ldc] = term(alpha.get(), a, at(transa, i, j, lda)) + term(beta.get(), b, at(transb, i, j, ldb));
  });
}
template <class T>
cublasStatus_t dgmm(cublasHandle_t h, cublasSideMode_t side, int m, int n, const T* a, int lda, const T* x, int incx, T* c, int ldc) {
  return run(h, [=] {
    const T* by = first(x, side == CUBLAS_SIDE_LEFT ? m : n, incx);
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < m; ++i) c[i + j * ldc] = a[i + j * lda] * by[(side == CUBLAS_SIDE_LEFT ? i : j) * incx];
  });
}
// Rows of bytes, between the host and the device.
inline cublasStatus_t transfer(void* to, long to_step, const void* from, long from_step, long bytes, long rows, cudaMemcpyKind kind) {
  const cudaError_t error = to_step == bytes && from_step == bytes
                                ? cudaMemcpy(to, from, bytes * rows, kind)
                                : cudaMemcpy2D(to, to_step, from, from_step, bytes, rows, kind);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

}  // namespace dagc::host::blas

inline cublasStatus_t cublasSetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  return dagc::host::blas::transfer(y, long(incy) * size, x, long(incx) * size, size, n, cudaMemcpyHostToDevice);
}
inline cublasStatus_t cublasGetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  return dagc::host::blas::transfer(y, long(incy) * size, x, long(incx) * size, size, n, cudaMemcpyDeviceToHost);
}
inline cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void* a, int lda, void* b, int ldb) {
  return dagc::host::blas::transfer(b, long(ldb) * size, a, long(lda) * size, long(rows) * size, columns, cudaMemcpyHostToDevice);
}
inline cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void* a, int lda, void* b, int ldb) {
  return dagc::host::blas::transfer(b, long(ldb) * size, a, long(lda) * size, long(rows) * size, columns, cudaMemcpyDeviceToHost);
}

#define DAGC_BLAS_OF(P, T, name) inline constexpr auto cublas##P##name = dagc::host::blas::name<T>;
#define DAGC_BLAS(name) DAGC_BLAS_OF(S, float, name) DAGC_BLAS_OF(D, double, name)
DAGC_BLAS(axpy)
DAGC_BLAS(scal)
DAGC_BLAS(copy)
DAGC_BLAS(swap)
DAGC_BLAS(dot)
DAGC_BLAS(nrm2)
DAGC_BLAS(asum)
DAGC_BLAS(gemv)
DAGC_BLAS(symv)
DAGC_BLAS(ger)
DAGC_BLAS(gemm)
DAGC_BLAS(geam)
DAGC_BLAS(dgmm)
inline constexpr auto cublasIsamax = dagc::host::blas::amax<float>;
inline constexpr auto cublasIdamax = dagc::host::blas::amax<double>;
#undef DAGC_BLAS
#undef DAGC_BLAS_OF
