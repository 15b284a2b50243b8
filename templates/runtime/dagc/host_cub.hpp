// Host target: the part of CUB that kernels and ops use most: reductions and scans of a block or a warp, and reductions,
// scans, selections and sorts of arrays, which run on their stream like a kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "host_groups.hpp"
#include "host_runtime.hpp"

namespace dagc::host {

// As CUB's functions are called: with no memory of their own they say how much they need, of which this needs none.
template <class F>
cudaError_t library_call(const char* name, void* memory, std::size_t& bytes, cudaStream_t stream, F work) {
  if (memory == nullptr) {
    bytes = 1;
    return cudaSuccess;
  }
  if (on_library_call != nullptr) on_library_call(name, nullptr, 0);
  return issue(stream, std::move(work));
}

}  // namespace dagc::host

namespace cub {

struct Sum {
  template <class T, class U>
  auto operator()(const T& a, const U& b) const {
    return a + b;
  }
};
struct Min {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

namespace detail {

inline int thread() { return static_cast<int>(cooperative_groups::detail::rank_in_block()); }
inline int threads() { return static_cast<int>(cooperative_groups::detail::threads_of_block()); }

// A value of each thread; uninitialised, as shared memory is.
template <class T, int Threads>
struct Values {
  alignas(T) unsigned char bytes[sizeof(T) * Threads];
  T& operator[](int at) { return reinterpret_cast<T*>(bytes)[at]; }
};

// The default storage of a collective: one for each block, since a block runs on one thread of the host.
template <class Storage>
Storage& own_storage() {
  static thread_local Storage storage;
  return storage;
}

template <class T, int Items, class F>
T reduced(T (&items)[Items], F operation) {
  T total = items[0];
  for (int i = 1; i < Items; ++i) total = operation(total, items[i]);
  return total;
}

}  // namespace detail

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
class BlockReduce {
 public:
  using TempStorage = detail::Values<T, X * Y * Z>;
  BlockReduce() : values_(detail::own_storage<TempStorage>()) {}
  explicit BlockReduce(TempStorage& storage) : values_(storage) {}

  // The result is that of the first thread, as CUB has it; on the others it is their own value.
  template <class F>
  T Reduce(T value, F operation, int valid = X * Y * Z) {
    values_[detail::thread()] = value;
    __syncthreads();
    if (detail::thread() == 0)
      for (int i = 1; i < std::min(valid, detail::threads()); ++i) value = operation(value, values_[i]);
    return value;
  }
  template <int Items, class F>
  T Reduce(T (&items)[Items], F operation) {
    return Reduce(detail::reduced(items, operation), operation);
  }
  T Sum(T value, int valid = X * Y * Z) { return Reduce(value, cub::Sum{}, valid); }
  template <int Items>
  T Sum(T (&items)[Items]) {
    return Reduce(items, cub::Sum{});
  }

 private:
  TempStorage& values_;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
 public:
  using TempStorage = detail::Values<T, X * Y * Z>;
  BlockScan() : values_(detail::own_storage<TempStorage>()) {}
  explicit BlockScan(TempStorage& storage) : values_(storage) {}

  template <class F>
  void InclusiveScan(T value, T& out, F operation, T& total) {
    T before{};
    const bool any = scanned(value, before, operation, total);
    out = any ? operation(before, value) : value;
  }
  template <class F>
  void InclusiveScan(T value, T& out, F operation) {
    T total;
    InclusiveScan(value, out, operation, total);
  }
  template <class F>
  void ExclusiveScan(T value, T& out, T initial, F operation, T& total) {
    T before{};
    const bool any = scanned(value, before, operation, total);
    out = any ? operation(initial, before) : initial;
  }
  template <class F>
  void ExclusiveScan(T value, T& out, T initial, F operation) {
    T total;
    ExclusiveScan(value, out, initial, operation, total);
  }
  void InclusiveSum(T value, T& out) { InclusiveScan(value, out, cub::Sum{}); }
  void InclusiveSum(T value, T& out, T& total) { InclusiveScan(value, out, cub::Sum{}, total); }
  void ExclusiveSum(T value, T& out) { ExclusiveScan(value, out, T{}, cub::Sum{}); }
  void ExclusiveSum(T value, T& out, T& total) { ExclusiveScan(value, out, T{}, cub::Sum{}, total); }

  template <int Items>
  void InclusiveSum(T (&items)[Items], T (&out)[Items]) {
    T total, before;
    ExclusiveSum(detail::reduced(items, cub::Sum{}), before, total);
    for (int i = 0; i < Items; ++i) out[i] = before = before + items[i];
  }
  template <int Items>
  void ExclusiveSum(T (&items)[Items], T (&out)[Items], T& total) {
    T before;
    ExclusiveSum(detail::reduced(items, cub::Sum{}), before, total);
    for (int i = 0; i < Items; ++i) {
      const T next = before + items[i];  // `out` may be `items`
      out[i] = std::exchange(before, next);
    }
  }
  template <int Items>
  void ExclusiveSum(T (&items)[Items], T (&out)[Items]) {
    T total;
    ExclusiveSum(items, out, total);
  }

 private:
  // Whether threads are before this one; what theirs make together, and that of all threads.
  template <class F>
  bool scanned(T value, T& before, F operation, T& total) {
    values_[detail::thread()] = value;
    __syncthreads();
    total = values_[0];
    for (int i = 1; i <= detail::threads(); ++i) {
      if (i == detail::thread()) before = total;
      if (i < detail::threads()) total = operation(total, values_[i]);
    }
    return detail::thread() > 0;
  }

  TempStorage& values_;
};

template <class T, int Lanes = 32, int = 0>
class WarpReduce {
 public:
  struct TempStorage {};
  explicit WarpReduce(TempStorage&) {}
  template <class F>
  T Reduce(T value, F operation) {
    return cooperative_groups::reduce(tile(), value, operation);
  }
  T Sum(T value) { return Reduce(value, cub::Sum{}); }

 private:
  static auto tile() { return cooperative_groups::tiled_partition<Lanes>(cooperative_groups::this_thread_block()); }
};

template <class T, int Lanes = 32, int = 0>
class WarpScan {
 public:
  struct TempStorage {};
  explicit WarpScan(TempStorage&) {}
  void InclusiveSum(T value, T& out) { out = cooperative_groups::inclusive_scan(tile(), value, cub::Sum{}); }
  void InclusiveSum(T value, T& out, T& total) {
    InclusiveSum(value, out);
    total = tile().shfl(out, Lanes - 1);
  }
  void ExclusiveSum(T value, T& out) { out = cooperative_groups::exclusive_scan(tile(), value, cub::Sum{}); }
  void ExclusiveSum(T value, T& out, T& total) {
    ExclusiveSum(value, out);
    total = tile().shfl(value + out, Lanes - 1);
  }

 private:
  static auto tile() { return cooperative_groups::tiled_partition<Lanes>(cooperative_groups::this_thread_block()); }
};

// ---- iterators ----

template <class T, class Difference = std::ptrdiff_t>
struct CountingInputIterator {
  using value_type = T;
  using reference = T;
  using pointer = const T*;
  using difference_type = Difference;
  using iterator_category = std::random_access_iterator_tag;
  T at;
  explicit CountingInputIterator(T first) : at(first) {}
  T operator*() const { return at; }
  T operator[](Difference i) const { return static_cast<T>(at + static_cast<T>(i)); }
  CountingInputIterator operator+(Difference i) const { return CountingInputIterator((*this)[i]); }
};

template <class T, class F, class Of, class Difference = std::ptrdiff_t>
struct TransformInputIterator {
  using value_type = T;
  using reference = T;
  using pointer = const T*;
  using difference_type = Difference;
  using iterator_category = std::random_access_iterator_tag;
  Of of;
  F function;
  TransformInputIterator(Of first, F f) : of(first), function(f) {}
  T operator*() const { return function(of[0]); }
  T operator[](Difference i) const { return function(of[i]); }
  TransformInputIterator operator+(Difference i) const { return {of + i, function}; }
};

// ---- arrays ----

namespace detail {

template <class Iterator>
using ValueOf = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<Iterator&>()[0])>>;

}  // namespace detail

struct DeviceReduce {
  template <class In, class Out, class N, class F, class T>
  static cudaError_t Reduce(void* memory, std::size_t& bytes, In in, Out out, N count, F operation, T initial,
                            cudaStream_t stream = nullptr) {
    return dagc::host::library_call("cub::DeviceReduce", memory, bytes, stream, [=]() mutable {
      T total = initial;
      for (N i = 0; i < count; ++i) total = operation(total, in[i]);
      *out = total;
    });
  }
  template <class In, class Out, class N>
  static cudaError_t Sum(void* memory, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr) {
    return Reduce(memory, bytes, in, out, count, cub::Sum{}, detail::ValueOf<Out>{}, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Min(void* memory, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr) {
    using T = detail::ValueOf<In>;
    return Reduce(memory, bytes, in, out, count, cub::Min{}, std::numeric_limits<T>::max(), stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Max(void* memory, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr) {
    using T = detail::ValueOf<In>;
    return Reduce(memory, bytes, in, out, count, cub::Max{}, std::numeric_limits<T>::lowest(), stream);
  }
};

struct DeviceScan {
  template <class In, class Out, class F, class T, class N>
  static cudaError_t ExclusiveScan(void* memory, std::size_t& bytes, In in, Out out, F operation, T initial, N count,
                                   cudaStream_t stream = nullptr) {
    return dagc::host::library_call("cub::DeviceScan", memory, bytes, stream, [=]() mutable {
      T total = initial;
      for (N i = 0; i < count; ++i) {
        const T next = operation(total, in[i]);  // `out` may be `in`
        out[i] = std::exchange(total, next);
      }
    });
  }
  template <class In, class Out, class F, class N>
  static cudaError_t InclusiveScan(void* memory, std::size_t& bytes, In in, Out out, F operation, N count,
                                   cudaStream_t stream = nullptr) {
    return dagc::host::library_call("cub::DeviceScan", memory, bytes, stream, [=]() mutable {
      for (N i = 0; i < count; ++i) out[i] = i == 0 ? in[i] : operation(out[i - 1], in[i]);
    });
  }
  template <class In, class Out, class N>
  static cudaError_t ExclusiveSum(void* memory, std::size_t& bytes, In in, Out out, N count,
                                  cudaStream_t stream = nullptr) {
    return ExclusiveScan(memory, bytes, in, out, cub::Sum{}, detail::ValueOf<In>{}, count, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t InclusiveSum(void* memory, std::size_t& bytes, In in, Out out, N count,
                                  cudaStream_t stream = nullptr) {
    return InclusiveScan(memory, bytes, in, out, cub::Sum{}, count, stream);
  }
};

struct DeviceSelect {
  template <class In, class Flags, class Out, class Count, class N>
  static cudaError_t Flagged(void* memory, std::size_t& bytes, In in, Flags flags, Out out, Count selected, N count,
                             cudaStream_t stream = nullptr) {
    return kept(memory, bytes, in, out, selected, count, [=](N i) { return static_cast<bool>(flags[i]); }, stream);
  }
  template <class In, class Out, class Count, class N, class F>
  static cudaError_t If(void* memory, std::size_t& bytes, In in, Out out, Count selected, N count, F which,
                        cudaStream_t stream = nullptr) {
    return kept(memory, bytes, in, out, selected, count, [=](N i) mutable { return which(in[i]); }, stream);
  }
  template <class In, class Out, class Count, class N>
  static cudaError_t Unique(void* memory, std::size_t& bytes, In in, Out out, Count selected, N count,
                            cudaStream_t stream = nullptr) {
    return kept(memory, bytes, in, out, selected, count, [=](N i) { return i == 0 || in[i] != in[i - 1]; }, stream);
  }

 private:
  template <class In, class Out, class Count, class N, class F>
  static cudaError_t kept(void* memory, std::size_t& bytes, In in, Out out, Count selected, N count, F which,
                          cudaStream_t stream) {
    return dagc::host::library_call("cub::DeviceSelect", memory, bytes, stream, [=]() mutable {
      N to = 0;
      for (N i = 0; i < count; ++i)
        if (which(i)) out[to++] = in[i];
      *selected = static_cast<detail::ValueOf<Count>>(to);
    });
  }
};

struct DeviceRadixSort {
  template <class K, class N>
  static cudaError_t SortKeys(void* memory, std::size_t& bytes, const K* in, K* out, N count, int begin = 0,
                              int end = sizeof(K) * 8, cudaStream_t stream = nullptr) {
    return sorted<K, char>(memory, bytes, in, out, nullptr, nullptr, count, begin, end, false, stream);
  }
  template <class K, class N>
  static cudaError_t SortKeysDescending(void* memory, std::size_t& bytes, const K* in, K* out, N count, int begin = 0,
                                        int end = sizeof(K) * 8, cudaStream_t stream = nullptr) {
    return sorted<K, char>(memory, bytes, in, out, nullptr, nullptr, count, begin, end, true, stream);
  }
  template <class K, class V, class N>
  static cudaError_t SortPairs(void* memory, std::size_t& bytes, const K* in, K* out, const V* values, V* sorted_values,
                               N count, int begin = 0, int end = sizeof(K) * 8, cudaStream_t stream = nullptr) {
    return sorted(memory, bytes, in, out, values, sorted_values, count, begin, end, false, stream);
  }
  template <class K, class V, class N>
  static cudaError_t SortPairsDescending(void* memory, std::size_t& bytes, const K* in, K* out, const V* values,
                                         V* sorted_values, N count, int begin = 0, int end = sizeof(K) * 8,
                                         cudaStream_t stream = nullptr) {
    return sorted(memory, bytes, in, out, values, sorted_values, count, begin, end, true, stream);
  }

 private:
  // Stable. Only all bits of numbers, or some of those without a sign.
  template <class K, class V, class N>
  static cudaError_t sorted(void* memory, std::size_t& bytes, const K* in, K* out, const V* values, V* sorted_values,
                            N count, int begin, int end, bool descending, cudaStream_t stream) {
    const bool all = begin == 0 && end == static_cast<int>(sizeof(K) * 8);
    if (!all && !std::is_unsigned_v<K>) return cudaErrorNotSupported;
    return dagc::host::library_call("cub::DeviceRadixSort", memory, bytes, stream, [=] {
      const auto part = [=](const K& key) {
        if constexpr (std::is_unsigned_v<K>)
          return all ? key : static_cast<K>(static_cast<K>(key >> begin) & static_cast<K>((K{1} << (end - begin)) - 1));
        else
          return key;
      };
      std::vector<N> order(static_cast<std::size_t>(count));
      std::iota(order.begin(), order.end(), N{});
      std::stable_sort(order.begin(), order.end(), [&](N a, N b) {
        return descending ? part(in[b]) < part(in[a]) : part(in[a]) < part(in[b]);
      });
      for (N i = 0; i < count; ++i) {
        out[i] = in[order[static_cast<std::size_t>(i)]];
        if (values != nullptr) sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
      }
    });
  }
};

}  // namespace cub
