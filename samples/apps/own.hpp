// Arrays of the application, on the GPU (APP_CUDA) or in the host's memory.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>
#ifdef APP_CUDA
#include <cuda_runtime_api.h>

inline void cuda(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "app: %s\n", cudaGetErrorString(status));
  std::exit(5);
}
#endif

template <class T>
class Own {
 public:
  explicit Own(std::vector<T> values) : values_(std::move(values)), data_(values_.data()) {
#ifdef APP_CUDA
    cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + 1));
    cuda(cudaMemcpy(data_, values_.data(), bytes(), cudaMemcpyHostToDevice));
#endif
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  ~Own() {
#ifdef APP_CUDA
    cudaFree(data_);
#endif
  }

  T* data() { return data_; }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  const std::vector<T>& values() {
#ifdef APP_CUDA
    cuda(cudaMemcpy(values_.data(), data_, bytes(), cudaMemcpyDeviceToHost));
#endif
    return values_;
  }

 private:
  std::size_t bytes() const { return values_.size() * sizeof(T); }

  std::vector<T> values_;
  T* data_;
};

// The GPU of this rank.
inline void take_gpu([[maybe_unused]] int rank) {
#ifdef APP_CUDA
  int gpus = 1;
  cuda(cudaGetDeviceCount(&gpus));
  cuda(cudaSetDevice(rank % gpus));
#endif
}
