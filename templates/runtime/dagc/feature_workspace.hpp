// Memory and a stream for kernels that the code of a feature launches.
//
//   const dagc::FeatureWorkspace work(bytes);
//   count<<<1, 32, 0, work.stream()>>>(a.device(), work.at<int>(0));
//   return work.read<int>(0);                                 // waits for the kernel
#pragma once

#include <cstddef>
#include <cstring>

#include "dagc/check.hpp"
#include "dagc/reduce.hpp"
#include "dagc/target.hpp"

namespace dagc {

class FeatureWorkspace {
 public:
  // `bytes` in device memory, set to 0. The stream is that of the thread that copies for features, if there is one.
  explicit FeatureWorkspace(std::size_t bytes) : stream_(staging() != nullptr ? staging()->stream : nullptr) {
#if DAGC_TARGET_CUDA
    DAGC_CUDA(cudaMallocAsync(&memory_, bytes, stream_));  // cudaFree would wait for all that runs on the GPU
#else
    DAGC_CUDA(cudaMalloc(&memory_, bytes));
#endif
    DAGC_CUDA(cudaMemsetAsync(memory_, 0, bytes, stream_));
  }
  FeatureWorkspace(const FeatureWorkspace&) = delete;
  FeatureWorkspace& operator=(const FeatureWorkspace&) = delete;
  ~FeatureWorkspace() {
#if DAGC_TARGET_CUDA
    cudaFreeAsync(memory_, stream_);
#else
    cudaFree(memory_);
#endif
  }

  cudaStream_t stream() const { return stream_; }

  // The address `offset` bytes into the memory.
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  // What stands there after all work of the stream.
  template <class T>
  T read(std::size_t offset) const {
    T value;
    const Staging* const through = staging();
    void* const to = through != nullptr ? static_cast<void*>(through->buffer) : &value;
    DAGC_CUDA(cudaMemcpyAsync(to, memory_ + offset, sizeof value, cudaMemcpyDeviceToHost, stream_));
    DAGC_CUDA(cudaStreamSynchronize(stream_));
    if (through != nullptr) std::memcpy(&value, to, sizeof value);
    return value;
  }

 private:
  cudaStream_t stream_;
  char* memory_ = nullptr;
};

}  // namespace dagc
