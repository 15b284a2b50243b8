// The condition that ends a repetition on the device, and the kernel that tests it after an iteration.
#pragma once

#include <cstdint>

#include "dagc/target.hpp"

#if DAGC_TARGET_CUDA && CUDART_VERSION < 12040
#define DAGC_WHILE_NODES 0
using cudaGraphConditionalHandle = unsigned long long;
#else
#define DAGC_WHILE_NODES 1
#endif

namespace dagc {

enum class Compare { never, ne, lt, le, gt, ge, eq };

// In device memory.
struct LoopState {
  std::int64_t left;   // iterations that may follow
  std::int32_t stops;  // whether the condition ends them
  std::int32_t ended;  // whether it held after the last one
  double value;        // what was compared then
  std::int64_t extra;  // iterations since it first held, of several between two tests
};

// The condition that ends a repetition. A comparison with NaN is false, as on the host.
template <class T, class Bound>
struct LoopTest {
  const T* value = nullptr;
  Compare compare = Compare::never;
  Bound bound{};

  __host__ __device__ bool holds(Bound v) const {
    return compare == Compare::ne   ? v != bound
           : compare == Compare::lt ? v < bound
           : compare == Compare::le ? v <= bound
           : compare == Compare::gt ? v > bound
           : compare == Compare::ge ? v >= bound
           : compare == Compare::eq ? v == bound
                                    : false;
  }
  // Volatile: another op of the same kernel may have written it.
  __host__ __device__ Bound seen() const {
    return compare == Compare::never ? Bound() : static_cast<Bound>(*static_cast<const volatile T*>(value));
  }
};

template <class T, class Bound>
DAGC_LAUNCHER void issue_test(cudaStream_t stream, LoopState* state, const LoopTest<T, Bound>& test,
                              cudaGraphConditionalHandle handle, bool node);

#if DAGC_HAS_KERNELS
DAGC_KERNELS_BEGIN

// After an iteration, by one thread. `node`: whether a while node reads `handle`, whose body ends here.
template <class T, class Bound>
__global__ void test_loop(LoopState* state, LoopTest<T, Bound> test, cudaGraphConditionalHandle handle, bool node) {
  const std::int64_t left = --state->left;
  bool ended = state->stops != 0 && state->ended != 0;
  if (ended) {
    ++state->extra;
  } else {
    const Bound v = test.seen();
    ended = test.holds(v);
    state->ended = ended;
    state->value = static_cast<double>(v);
  }
#if DAGC_WHILE_NODES
  if (node) cudaGraphSetConditional(handle, left > 0 && !(ended && state->stops != 0));
#endif
}

DAGC_KERNELS_END

template <class T, class Bound>
DAGC_LAUNCHER void issue_test(cudaStream_t stream, LoopState* state, const LoopTest<T, Bound>& test,
                              cudaGraphConditionalHandle handle, bool node) {
  launch(test_loop<T, Bound>, dim3(1), dim3(1), 0, stream, state, test, handle, node);
}

#ifdef DAGC_KERNELS_APART
template void issue_test<int, int>(cudaStream_t, LoopState*, const LoopTest<int, int>&, cudaGraphConditionalHandle, bool);
#endif
#endif

}  // namespace dagc
