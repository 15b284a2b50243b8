// Records the calls of cuBLAS by a program as it is, on a GPU: this library is loaded before cuBLAS, whose functions these
// call. Those that are not here are refused where they launch a kernel (cupti.cpp).
#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

#include "library_call.hpp"

namespace dagc::record {
namespace {

template <class Function>
Function next(const char* name, Function) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
std::string without_version(const std::string& name) { return name.substr(0, name.find('_')); }
#define DAGC_TEXT(name) #name
#define DAGC_NEXT(name) dagc::record::next(DAGC_TEXT(name), &name)  // names are macros, of the newest version

struct LoadedLibrary {
  static cudaStream_t stream(cublasHandle_t handle) {
    cudaStream_t stream = nullptr;
    DAGC_NEXT(cublasGetStream)(handle, &stream);
    return stream;
  }
  static cublasPointerMode_t mode(cublasHandle_t handle) {
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    DAGC_NEXT(cublasGetPointerMode)(handle, &mode);
    return mode;
  }
  static void set_mode(cublasHandle_t handle, cublasPointerMode_t mode) {
    DAGC_NEXT(cublasSetPointerMode)(handle, mode);
  }
  template <class Call>
  static void watched(const Event&, cudaStream_t, const Call& call) {
    call();
  }
};

}  // namespace
}  // namespace dagc::record

extern "C" cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  cublasStatus_t status;
  {
    const dagc::record::Inside library;
    status = DAGC_NEXT(cublasCreate)(handle);
  }
  dagc::record::prepare_results();
  return status;
}
extern "C" cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  const dagc::record::Inside library;
  return DAGC_NEXT(cublasDestroy)(handle);
}

#define DAGC_BLAS(name, parameters, ...)                                                                        \
  extern "C" cublasStatus_t name parameters {                                                                   \
    const auto site = std::to_string(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));            \
    const std::string text = dagc::record::without_version(DAGC_TEXT(name));                                    \
    return dagc::record::library_call<dagc::record::LoadedLibrary>(text, site, DAGC_NEXT(name), h, __VA_ARGS__); \
  }
#define DAGC_VECTORS(P, T)                                                                                                     \
  DAGC_BLAS(cublas##P##axpy, (cublasHandle_t h, int n, const T* a, const T* x, int ix, T* y, int iy), n, a, x, ix, y, iy)      \
  DAGC_BLAS(cublas##P##scal, (cublasHandle_t h, int n, const T* a, T* x, int ix), n, a, x, ix)                                 \
  DAGC_BLAS(cublas##P##copy, (cublasHandle_t h, int n, const T* x, int ix, T* y, int iy), n, x, ix, y, iy)                     \
  DAGC_BLAS(cublas##P##swap, (cublasHandle_t h, int n, T* x, int ix, T* y, int iy), n, x, ix, y, iy)                           \
  DAGC_BLAS(cublas##P##dot, (cublasHandle_t h, int n, const T* x, int ix, const T* y, int iy, T* out), n, x, ix, y, iy, out)   \
  DAGC_BLAS(cublas##P##nrm2, (cublasHandle_t h, int n, const T* x, int ix, T* out), n, x, ix, out)                             \
  DAGC_BLAS(cublas##P##asum, (cublasHandle_t h, int n, const T* x, int ix, T* out), n, x, ix, out)
#define DAGC_MATRICES(P, T)                                                                                                    \
  DAGC_BLAS(cublas##P##gemv,                                                                                                   \
            (cublasHandle_t h, cublasOperation_t ta, int m, int n, const T* alpha, const T* a, int la, const T* x, int ix,     \
             const T* beta, T* y, int iy),                                                                                     \
            ta, m, n, alpha, a, la, x, ix, beta, y, iy)                                                                        \
  DAGC_BLAS(cublas##P##symv,                                                                                                   \
            (cublasHandle_t h, cublasFillMode_t part, int n, const T* alpha, const T* a, int la, const T* x, int ix,           \
             const T* beta, T* y, int iy),                                                                                     \
            part, n, alpha, a, la, x, ix, beta, y, iy)                                                                         \
  DAGC_BLAS(cublas##P##ger,                                                                                                    \
            (cublasHandle_t h, int m, int n, const T* alpha, const T* x, int ix, const T* y, int iy, T* a, int la), m, n,      \
            alpha, x, ix, y, iy, a, la)                                                                                        \
  DAGC_BLAS(cublas##P##gemm,                                                                                                   \
            (cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, const T* a,    \
             int la, const T* b, int lb, const T* beta, T* c, int lc),                                                         \
            ta, tb, m, n, k, alpha, a, la, b, lb, beta, c, lc)                                                                 \
  DAGC_BLAS(cublas##P##geam,                                                                                                   \
            (cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, const T* alpha, const T* a, int la,   \
             const T* beta, const T* b, int lb, T* c, int lc),                                                                 \
            ta, tb, m, n, alpha, a, la, beta, b, lb, c, lc)                                                                    \
  DAGC_BLAS(cublas##P##dgmm,                                                                                                   \
            (cublasHandle_t h, cublasSideMode_t side, int m, int n, const T* a, int la, const T* x, int ix, T* c, int lc),     \
            side, m, n, a, la, x, ix, c, lc)
DAGC_BLAS(cublasIsamax, (cublasHandle_t h, int n, const float* x, int ix, int* out), n, x, ix, out)
DAGC_BLAS(cublasIdamax, (cublasHandle_t h, int n, const double* x, int ix, int* out), n, x, ix, out)
DAGC_VECTORS(S, float)
DAGC_VECTORS(D, double)
DAGC_MATRICES(S, float)
DAGC_MATRICES(D, double)
