// Neighbouring elements of an array as one access: what kernels of the form `wide` use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dagc/target.hpp"

namespace dagc {

// V elements, one for each lane. Accesses have 16 bytes at most.
template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Vector {
  T of[V];
  __device__ __forceinline__ T& operator[](int lane) { return of[lane]; }
  __device__ __forceinline__ const T& operator[](int lane) const { return of[lane]; }
};

template <class T>
__device__ __forceinline__ const T* begin_of(const T* array) {
  return array;
}

template <int V, class T>
__device__ __forceinline__ bool begins_vector(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(Vector<std::remove_const_t<T>, V>) == 0;
}

// Whether elements 0, V, 2V, ... of all arrays begin a Vector.
template <int V, class... Array>
__device__ __forceinline__ bool aligned(const Array&... arrays) {
  return (begins_vector<V>(begin_of(arrays)) && ...);
}

// Whether, of V iterations of a loop, none accesses at one place what another one accesses at a second place: the first is
// `between` elements after the second, and they move by `step` and `other` elements from one iteration to the next.
template <int V>
__device__ __forceinline__ bool apart(long long between, long long step, long long other) {
  for (int k = 0; k < V; ++k) {
    for (int l = 0; l < V; ++l) {
      if (k != l && between + k * step == l * other) return false;
    }
  }
  return true;
}

template <int V, class T>
__device__ __forceinline__ Vector<std::remove_const_t<T>, V> load(T* at) {
  return *reinterpret_cast<const Vector<std::remove_const_t<T>, V>*>(at);
}

template <int V, class T>
__device__ __forceinline__ void store(T* at, const Vector<T, V>& values) {
  *reinterpret_cast<Vector<T, V>*>(at) = values;
}

template <int V, class T>
__device__ __forceinline__ Vector<T, V> vector_of(const T (&values)[V]) {
  Vector<T, V> all;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int lane = 0; lane < V; ++lane) all[lane] = values[lane];
  return all;
}

template <int V, class T>
__device__ __forceinline__ void store(T* at, const T (&values)[V]) {
  store(at, vector_of(values));
}

// ---- groups of which some lanes take part: those of `own`, as bits ----
// Others load and store nothing, but what is in one vector of at most 16 bytes with an element that is loaded: where that can
// be loaded, all of the vector can. On the host, not even that.

// The lanes for which a number is 0 or more, of which that of the first lane is given, and what it grows by.
template <int V>
__device__ __forceinline__ unsigned lanes(long long value, int step) {
  unsigned own = 0;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int lane = 0; lane < V; ++lane) own |= static_cast<unsigned>(value + step * lane >= 0) << lane;
  return own;
}

template <int V>
__device__ __forceinline__ bool any(unsigned own) {
  return own != 0;
}

template <int V>
__device__ __forceinline__ bool all(unsigned own) {
  return own == (1u << V) - 1;
}

template <int V, class T>
__device__ __forceinline__ void store(T* at, const Vector<T, V>& values, unsigned own) {
  if (all<V>(own)) return store(at, values);
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int lane = 0; lane < V; ++lane)
    if (own >> lane & 1) at[lane] = values[lane];
}

template <int V, class T>
__device__ __forceinline__ void store(T* at, const T (&values)[V], unsigned own) {
  store(at, vector_of(values), own);
}

// A store of what is not loaded again soon: the first to leave the caches.
template <int V, class T>
__device__ __forceinline__ void stream(T* at, const Vector<T, V>& values) {
#if defined(__CUDACC__)
  constexpr std::size_t size = alignof(Vector<T, V>);
  using Wide = std::conditional_t<size == 16, int4, std::conditional_t<size == 8, int2, int>>;
  using Word = std::conditional_t<size == 2, short, Wide>;
  for (std::size_t k = 0; k < V * sizeof(T) / size; ++k)
    __stcs(reinterpret_cast<Word*>(at) + k, reinterpret_cast<const Word*>(&values)[k]);
#else
  store(at, values);
#endif
}

template <int V, class T>
__device__ __forceinline__ void stream(T* at, const T (&values)[V]) {
  stream(at, vector_of(values));
}

template <int V, class T>
__device__ __forceinline__ void stream(T* at, const Vector<T, V>& values, unsigned own) {
  all<V>(own) ? stream(at, values) : store(at, values, own);
}

template <int V, class T>
__device__ __forceinline__ void stream(T* at, const T (&values)[V], unsigned own) {
  stream(at, vector_of(values), own);
}

// A row around `at`, which begins a Vector: elements FIRST to LAST are in registers, others are loaded where they are used.
template <class T, int V, int FIRST, int LAST>
struct Window {
  const T* at;
  Vector<T, V> of[(LAST - FIRST + 1) / V];
  __device__ __forceinline__ T operator[](int element) const {
    return element < FIRST || element > LAST ? at[element] : of[(element - FIRST) / V][(element - FIRST) % V];
  }
};

template <int V, int FIRST = 0, int LAST = V - 1, class T>
__device__ __forceinline__ Window<std::remove_const_t<T>, V, FIRST, LAST> window(T* at) {
  static_assert(FIRST % V == 0 && (LAST + 1) % V == 0);
  Window<std::remove_const_t<T>, V, FIRST, LAST> row;
  row.at = at;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int k = 0; k < (LAST - FIRST + 1) / V; ++k) row.of[k] = load<V>(at + FIRST + k * V);
  return row;
}

// A row around `at` in registers: elements FIRST to LAST, which are vectors, and what else the lanes load: each those
// from LEAST to MOST after its own.
template <class T, int V, int FIRST, int LAST, int LEAST, int MOST>
struct PartRow {
  static constexpr int BEGIN = LEAST < FIRST ? LEAST : FIRST, END = (MOST + V - 1 > LAST ? MOST + V - 1 : LAST) + 1;
  T of[END - BEGIN];
  __device__ __forceinline__ T operator[](int element) const { return of[element - BEGIN]; }
};

// The lanes that load some of `number` elements.
template <int V, int LEAST, int MOST>
__device__ __forceinline__ constexpr unsigned loading(int element, int number) {
  unsigned out = 0;
  for (int lane = 0; lane < V; ++lane)
    if (lane + MOST >= element && lane + LEAST < element + number) out |= 1u << lane;
  return out;
}

template <int V, int FIRST = 0, int LAST = V - 1, int LEAST = 0, int MOST = 0, class T>
__device__ __forceinline__ PartRow<std::remove_const_t<T>, V, FIRST, LAST, LEAST, MOST> window(T* at, unsigned own) {
  using Row = PartRow<std::remove_const_t<T>, V, FIRST, LAST, LEAST, MOST>;
  Row row;
#if defined(__CUDACC__)
  constexpr int W = V * sizeof(T) < 16 ? V : 16 / sizeof(T);
#pragma unroll
  for (int begin = FIRST; begin < LAST; begin += W) {
    Vector<std::remove_const_t<T>, W> some{};
    const unsigned loads = loading<V, LEAST, MOST>(begin, W);
    if (loads == (1u << V) - 1 || (own & loads) != 0) some = load<W>(at + begin);
#pragma unroll
    for (int k = 0; k < W; ++k) row.of[begin + k - Row::BEGIN] = some[k];
  }
#pragma unroll
  for (int k = Row::BEGIN; k < Row::END; ++k)
    if (k < FIRST || k > LAST) row.of[k - Row::BEGIN] = (own & loading<V, LEAST, MOST>(k, 1)) != 0 ? at[k] : T{};
#else
  for (int k = Row::BEGIN; k < Row::END; ++k)
    row.of[k - Row::BEGIN] = (own & loading<V, LEAST, MOST>(k, 1)) != 0 ? at[k] : T{};
#endif
  return row;
}

template <int V, class T>
__device__ __forceinline__ Vector<std::remove_const_t<T>, V> load(T* at, unsigned own) {
  return vector_of(window<V>(at, own).of);
}

}  // namespace dagc
