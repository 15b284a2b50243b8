// Host target: cuRAND's calls of the host. The distributions are those of cuRAND, the numbers are not.
#pragma once

#include <random>

#include "target.hpp"

enum curandStatus_t { CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_NOT_INITIALIZED = 101, CURAND_STATUS_LAUNCH_FAILURE = 201 };
using curandStatus = curandStatus_t;
enum curandRngType_t {
  CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW = 101, CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141, CURAND_RNG_PSEUDO_MT19937 = 142, CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161
};
struct curandGenerator_st {
  std::mt19937_64 engine;
  cudaStream_t stream = nullptr;
  bool on_host = false;
};
using curandGenerator_t = curandGenerator_st*;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t) {
  *generator = new curandGenerator_st;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t type) {
  const curandStatus_t status = curandCreateGenerator(generator, type);
  (*generator)->on_host = true;
  return status;
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  cudaStreamSynchronize(generator->stream);
  delete generator;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  cudaStreamSynchronize(generator->stream);
  generator->engine.seed(seed);
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
  cudaStreamSynchronize(generator->stream);
  generator->stream = stream;
  return CURAND_STATUS_SUCCESS;
}

namespace dagc::host {

template <class T, class Next>
curandStatus_t generate(curandGenerator_t generator, const char* name, const char* file, int line, T* to, std::size_t n, Next next) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  const auto work = [=]() mutable {
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(next(generator->engine));
  };
  if (generator->on_host) {
    auto now = work;
    now();
    return CURAND_STATUS_SUCCESS;
  }
  if (on_library_call != nullptr) on_library_call(name, file, line);
  return issue(generator->stream, work) == cudaSuccess ? CURAND_STATUS_SUCCESS : CURAND_STATUS_LAUNCH_FAILURE;
}

// Above 0 and up to 1, as cuRAND's.
template <class T>
struct Uniform {
  template <class Engine>
  T operator()(Engine& engine) {
    return T(1) - std::uniform_real_distribution<T>()(engine);
  }
};

}  // namespace dagc::host

#define DAGC_RAND_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
inline curandStatus_t curandGenerate(curandGenerator_t g, unsigned int* to, std::size_t n, DAGC_RAND_PLACE) {
  return dagc::host::generate(g, "curandGenerate", file, line, to, n, [](std::mt19937_64& engine) { return engine() >> 32; });
}
inline curandStatus_t curandGenerateUniform(curandGenerator_t g, float* to, std::size_t n, DAGC_RAND_PLACE) {
  return dagc::host::generate(g, "curandGenerateUniform", file, line, to, n, dagc::host::Uniform<float>());
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t g, double* to, std::size_t n, DAGC_RAND_PLACE) {
  return dagc::host::generate(g, "curandGenerateUniformDouble", file, line, to, n, dagc::host::Uniform<double>());
}
inline curandStatus_t curandGenerateNormal(curandGenerator_t g, float* to, std::size_t n, float mean, float deviation, DAGC_RAND_PLACE) {
  return dagc::host::generate(g, "curandGenerateNormal", file, line, to, n, std::normal_distribution<float>(mean, deviation));
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double* to, std::size_t n, double mean, double deviation, DAGC_RAND_PLACE) {
  return dagc::host::generate(g, "curandGenerateNormalDouble", file, line, to, n, std::normal_distribution<double>(mean, deviation));
}
#undef DAGC_RAND_PLACE
