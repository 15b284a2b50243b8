// Host target: cooperative groups of a block and of the tiles of its warps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "host_device.hpp"

namespace cooperative_groups {

namespace detail {

inline unsigned int rank_in_block() {
  const auto& at = dagc::here();
  return at.threadIdx.x + at.blockDim.x * (at.threadIdx.y + at.blockDim.y * at.threadIdx.z);
}
inline unsigned int threads_of_block() {
  const dim3& block = dagc::here().blockDim;
  return block.x * block.y * block.z;
}

}  // namespace detail

class thread_block {
 public:
  static void sync() { __syncthreads(); }
  static unsigned int thread_rank() { return detail::rank_in_block(); }
  static unsigned int num_threads() { return detail::threads_of_block(); }
  static unsigned int size() { return num_threads(); }
  static dim3 group_index() { return dagc::here().blockIdx; }
  static dim3 thread_index() { return dagc::here().threadIdx; }
  static dim3 dim_threads() { return dagc::here().blockDim; }
  static dim3 group_dim() { return dim_threads(); }
};
inline thread_block this_thread_block() { return {}; }

// `Size` neighbouring threads of a warp. `Parent` is the type of the group that was divided, or void: any.
template <unsigned int Size, class Parent = void>
class thread_block_tile {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "tiles of 1, 2, 4, 8, 16 or 32 threads");

 public:
  explicit thread_block_tile(unsigned int threads_of_parent) : tiles_((threads_of_parent + Size - 1) / Size) {}
  template <class Of, class = std::enable_if_t<std::is_void_v<Parent> && !std::is_void_v<Of>>>
  thread_block_tile(const thread_block_tile<Size, Of>& tile) : tiles_(tile.meta_group_size()) {}

  static unsigned int thread_rank() { return detail::rank_in_block() % Size; }
  static constexpr unsigned int num_threads() { return Size; }
  static constexpr unsigned int size() { return Size; }
  unsigned int meta_group_size() const { return tiles_; }
  unsigned int meta_group_rank() const { return detail::rank_in_block() / Size % tiles_; }

  static void sync() { __syncwarp(mask()); }
  static int any(int vote) { return __any_sync(mask(), vote); }
  static int all(int vote) { return __all_sync(mask(), vote); }
  static unsigned int ballot(int vote) { return __ballot_sync(mask(), vote) >> first(); }

  template <class T>
  static T shfl(T value, int source) {
    return by_words(value, [=](unsigned int word) { return __shfl_sync(mask(), word, source, Size); });
  }
  template <class T>
  static T shfl_up(T value, unsigned int delta) {
    return by_words(value, [=](unsigned int word) { return __shfl_up_sync(mask(), word, delta, Size); });
  }
  template <class T>
  static T shfl_down(T value, unsigned int delta) {
    return by_words(value, [=](unsigned int word) { return __shfl_down_sync(mask(), word, delta, Size); });
  }
  template <class T>
  static T shfl_xor(T value, int bits) {
    return by_words(value, [=](unsigned int word) { return __shfl_xor_sync(mask(), word, bits, Size); });
  }

 private:
  static unsigned int first() { return detail::rank_in_block() % 32 & ~(Size - 1); }
  static unsigned int mask() { return static_cast<unsigned int>(((std::uint64_t{1} << Size) - 1) << first()); }

  template <class T, class F>
  static T by_words(T value, F exchange) {
    static_assert(std::is_trivially_copyable_v<T>);
    unsigned int words[(sizeof(T) + 3) / 4] = {};
    std::memcpy(words, &value, sizeof value);
    for (unsigned int& word : words) word = exchange(word);
    std::memcpy(static_cast<void*>(&value), words, sizeof value);
    return value;
  }

  unsigned int tiles_;  // in the parent
};

template <unsigned int Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent& group) {
  return thread_block_tile<Size, Parent>(group.size());
}

template <class Group>
void sync(const Group& group) {
  group.sync();
}

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {  // the lesser one
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

// The values of all threads of the tile, on each of them.
template <unsigned int Size, class Parent, class T, class F>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, F operation) {
  for (unsigned int bits = Size / 2; bits > 0; bits /= 2) {
    const T other = tile.shfl_xor(value, static_cast<int>(bits));
    value = (tile.thread_rank() & bits) == 0 ? operation(value, other) : operation(other, value);
  }
  return value;
}

template <unsigned int Size, class Parent, class T, class F = plus<T>>
T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, F operation = {}) {
  for (unsigned int delta = 1; delta < Size; delta *= 2) {
    const T before = tile.shfl_up(value, delta);
    if (tile.thread_rank() >= delta) value = operation(before, value);
  }
  return value;
}
// That of the first thread is T{}.
template <unsigned int Size, class Parent, class T, class F = plus<T>>
T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, F operation = {}) {
  const T before = tile.shfl_up(inclusive_scan(tile, value, operation), 1);
  return tile.thread_rank() == 0 ? T{} : before;
}

}  // namespace cooperative_groups
