// Arrays of an emitted program: where they are, what they are for, and their sizes. store.hpp and library.hpp provide
// their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

// `any` arrays have two sides: `data` on the device, `mirror` on the host.
enum class Place { device, pinned, host, any };
// `prepared`: scratch that is filled once, before the first run.
enum class Role { constant, in, inout, out, scratch, prepared };

template <class T>
struct Array {
  T* data = nullptr;      // where the ops use it
  T* mirror = nullptr;    // page-locked, of `any` arrays
  std::int64_t size = 0;  // elements

  std::size_t bytes() const { return static_cast<std::size_t>(size) * sizeof(T); }
};

// Bytes [begin, end) of an array.
struct Range {
  const void* data;
  std::size_t begin, end;
};

// Elements [start, start + count).
template <class T>
Range range(const Array<T>& a, std::int64_t start, std::int64_t count) {
  return {a.data, static_cast<std::size_t>(start) * sizeof(T), static_cast<std::size_t>(start + count) * sizeof(T)};
}

namespace detail {

inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out += (i ? ", " : "") + (shape[i] < 0 ? std::string("*") : std::to_string(shape[i]));
  return out + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace detail

// Elements of an array of this shape. Fails for a negative dimension, and for more bytes than can be counted.
inline std::int64_t elements_of(const std::vector<std::int64_t>& shape, std::size_t width, const char* name) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;  // bytes
  std::int64_t size = 1;
  for (std::int64_t d : shape) {
    if (d < 0) fail(exit_run_failed, std::string(name) + ": a dimension is negative: " + std::to_string(d));
    if (d > 0 && size > most / static_cast<std::int64_t>(width) / d)
      fail(exit_run_failed, std::string(name) + ": a size of " + detail::shape_text(shape) + " elements is too large");
    size *= d;
  }
  return size;
}

// Copies elements to the host. Of `any` arrays, those of the host's side.
template <class T>
void fetch(const Array<T>& a, std::int64_t start, std::int64_t count, void* to) {
  const T* const from = a.mirror != nullptr ? a.mirror : a.data;
  if (count != 0) DAGC_CUDA(cudaMemcpy(to, from + start, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDefault));
}

// The same, as the host may read them.
template <class T>
std::unique_ptr<T[]> elements(const Array<T>& a, std::int64_t start, std::int64_t count) {
  std::unique_ptr<T[]> out(new T[static_cast<std::size_t>(count)]);
  fetch(a, start, count, out.get());
  return out;
}

}  // namespace dagc
