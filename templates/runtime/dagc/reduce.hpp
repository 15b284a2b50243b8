// Sums and maxima over the elements of arrays, computed where the arrays are.
//
//   dagc::Reductions together;                                // those launched from here on are waited for together
//   const dagc::Reduction a = reduced<Sum>(...), b = ...;
//   a + b;                                                    // waits for both
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Memory of the GPU for reductions that run one after another: of the one that is running, and the results of all.
struct ReductionScratch {
  static constexpr int kParts = 1024;  // blocks, at most
  static constexpr int kResults = 64;
  double parts[kParts];
  double results[kResults];
  unsigned ended;  // blocks
};

// Page-locked memory, a stream, and memory of the GPU, through which a thread beside the program copies to the host: other threads
// that use the GPU would wait for a copy to memory that is not page-locked, and for memory to be freed.
struct Staging {
  char* buffer = nullptr;
  std::size_t bytes = 0;
  ReductionScratch* scratch = nullptr;
  cudaStream_t stream = nullptr;
};

// This thread's; none: plain copies.
inline Staging*& staging() {
  thread_local Staging* mine = nullptr;
  return mine;
}

namespace detail {

struct Sum {
  static constexpr double none = 0;
  __host__ __device__ static double of(double a, double b) { return a + b; }
};

struct Most {
  static constexpr double none = -std::numeric_limits<double>::infinity();
  __host__ __device__ static double of(double a, double b) { return b > a || b != b ? b : a; }  // NaN if any is
};

#if DAGC_TARGET_CUDA

inline bool on_device(const void* memory) {
  cudaPointerAttributes at{};
  DAGC_CUDA(cudaPointerGetAttributes(&at, memory));
  return at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged;
}

#if DAGC_HAS_KERNELS

constexpr int kReducing = 256;  // threads of a block

// On thread 0: of all threads of a block, always in the same order.
template <class Operation>
__device__ double of_block(double mine, double* of_thread) {
  const int thread = static_cast<int>(threadIdx.x);
  of_thread[thread] = mine;
  for (int step = kReducing / 2; step > 0; step /= 2) {
    __syncthreads();
    if (thread < step) of_thread[thread] = Operation::of(of_thread[thread], of_thread[thread + step]);
  }
  return of_thread[0];
}

// The block that ends last combines the parts of all, in the order of the blocks: a sum has the same rounding errors in every run.
template <class Operation, class T, class F>
__global__ void reduce(const T* elements, std::int64_t count, F f, ReductionScratch* scratch, int result) {
  __shared__ double of_thread[kReducing];
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  double mine = Operation::none;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kReducing + thread; i < count; i += std::int64_t{gridDim.x} * kReducing)
    mine = Operation::of(mine, static_cast<double>(f(elements, i)));
  mine = of_block<Operation>(mine, of_thread);
  if (thread == 0) {
    scratch->parts[blockIdx.x] = mine;
    __threadfence();
    last = atomicAdd(&scratch->ended, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  mine = Operation::none;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kReducing) mine = Operation::of(mine, __ldcg(scratch->parts + i));
  mine = of_block<Operation>(mine, of_thread);
  if (thread == 0) {
    scratch->results[result] = mine;
    scratch->ended = 0;
  }
}

#endif
#endif

}  // namespace detail

// Reductions of this thread on its GPU, launched one after another and waited for when one of their values is asked for.
class Reductions {
 public:
  Reductions() : outer_(current()) { current() = this; }
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;
  ~Reductions() {
    current() = outer_;
    if (own_ != nullptr) cudaFree(own_);
  }

  // The innermost that this thread has; none: a reduction is waited for at once.
  static Reductions*& current() {
    thread_local Reductions* innermost = nullptr;
    return innermost;
  }

  // The value of a reduction, by its number.
  double value(std::size_t number) {
    if (number >= values_.size()) wait();
    return values_[number];
  }

#if DAGC_TARGET_CUDA
  // Launches a reduction, and returns its number.
  template <class Operation, class T, class F>
  std::size_t launch(const T* elements, std::int64_t count, F f)
#if DAGC_HAS_KERNELS
  {
    if (launched_ - values_.size() == ReductionScratch::kResults) wait();
    if (scratch_ == nullptr) make();
    const std::int64_t wanted = (count + detail::kReducing - 1) / detail::kReducing, most = ReductionScratch::kParts;
    const unsigned blocks = static_cast<unsigned>(wanted < most ? wanted : most);
    const int result = static_cast<int>(launched_ - values_.size());
    detail::reduce<Operation><<<blocks, detail::kReducing, 0, stream_>>>(elements, count, f, scratch_, result);
    DAGC_CUDA(cudaGetLastError());
    return launched_++;
  }
#else
      = delete;
#endif
#endif

 private:
  void make() {
    if (const Staging* const through = staging()) {
      stream_ = through->stream;
      scratch_ = through->scratch;
    } else {
      DAGC_CUDA(cudaMalloc(&own_, sizeof *own_));
      scratch_ = own_;
    }
    DAGC_CUDA(cudaMemsetAsync(&scratch_->ended, 0, sizeof scratch_->ended, stream_));
  }

  void wait() {
    double results[ReductionScratch::kResults];
    const std::size_t bytes = (launched_ - values_.size()) * sizeof(double);
    if (const Staging* const through = staging()) {
      DAGC_CUDA(cudaMemcpyAsync(through->buffer, scratch_->results, bytes, cudaMemcpyDefault, stream_));
      DAGC_CUDA(cudaStreamSynchronize(stream_));
      std::memcpy(results, through->buffer, bytes);
    } else {
      DAGC_CUDA(cudaMemcpy(results, scratch_->results, bytes, cudaMemcpyDefault));
    }
    values_.insert(values_.end(), results, results + bytes / sizeof(double));
  }

  Reductions* const outer_;
  ReductionScratch* scratch_ = nullptr;
  ReductionScratch* own_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::size_t launched_ = 0;
  std::vector<double> values_;
};

// A sum or a maximum: a double, for which the first use may have to wait. Not beyond the Reductions in which it was launched.
class Reduction {
 public:
  explicit Reduction(double value) : value_(value) {}
  Reduction(Reductions& of, std::size_t number) : of_(&of), number_(number) {}

  operator double() const { return of_ != nullptr ? of_->value(number_) : value_; }
  bool pending() const { return of_ != nullptr; }

 private:
  double value_ = 0;
  Reductions* of_ = nullptr;
  std::size_t number_ = 0;
};

// What a feature returns: a number, or a reduction that nothing has waited for yet.
class Feature {
 public:
  Feature(double value = 0) : is_(value) {}
  Feature(Reduction value) : is_(value) {}

  double value() const { return is_; }
  bool pending() const { return is_.pending(); }

 private:
  Reduction is_;
};

namespace detail {

// f(elements, i) of i = 0 .. count - 1; 0 for none. In device memory on the GPU, else on the host.
template <class Operation, class T, class F>
Reduction reduced(const T* elements, std::int64_t count, F f) {
  if (count <= 0) return Reduction(0);
#if DAGC_TARGET_CUDA
  if (on_device(elements)) {
    if (Reductions* const together = Reductions::current())
      return {*together, together->launch<Operation>(elements, count, f)};
    Reductions alone;
    return Reduction(alone.value(alone.launch<Operation>(elements, count, f)));
  }
#endif
  double all = Operation::none;
  for (std::int64_t i = 0; i < count; ++i) all = Operation::of(all, static_cast<double>(f(elements, i)));
  return Reduction(all);
}

}  // namespace detail

}  // namespace dagc
