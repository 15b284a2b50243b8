// Arrays of an emitted program: their places, roles and sizes. store.hpp and library.hpp provide
// their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "dagc/check.hpp"
#include "dagc/feature_workspace.hpp"
#include "dagc/reduce.hpp"
#include "dagc/target.hpp"

namespace dagc {

// `any` arrays have two sides: `data` on the device, `mirror` on the host. Of `two_sided` ones, that on the device is allocated
// when it is first needed (two_sided.hpp).
enum class Place { device, pinned, host, any, two_sided };
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

// Touches each page of memory that is going to be written. Pages that a copy of the driver touches first are mapped
// under a lock, so that two threads would copy one after the other.
inline void touch(void* memory, std::size_t bytes) {
  constexpr std::size_t page = 4096;
  volatile char* const to = static_cast<char*>(memory);
  for (std::size_t at = 0; at < bytes; at += page) to[at] = 0;
}

// Copies elements to the host. Of `any` arrays, those of the host's side.
template <class T>
void fetch(const Array<T>& a, std::int64_t start, std::int64_t count, void* to) {
  const T* const from = a.mirror != nullptr ? a.mirror : a.data;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  const Staging* const through = staging();
  if (bytes == 0) return;
  if (through == nullptr) {
    touch(to, bytes);
    DAGC_CUDA(cudaMemcpy(to, from + start, bytes, cudaMemcpyDefault));
    return;
  }
  for (std::size_t done = 0; done < bytes; done += through->bytes) {
    const std::size_t part = bytes - done < through->bytes ? bytes - done : through->bytes;
    DAGC_CUDA(cudaMemcpyAsync(through->buffer, reinterpret_cast<const char*>(from + start) + done, part, cudaMemcpyDefault, through->stream));
    DAGC_CUDA(cudaStreamSynchronize(through->stream));
    std::memcpy(static_cast<char*>(to) + done, through->buffer, part);
  }
}

// The first element as a number; NaN if there is none.
template <class T>
double first(const Array<T>& a) {
  if (a.size == 0) return std::numeric_limits<double>::quiet_NaN();
  T value{};
  fetch(a, 0, 1, &value);
  return static_cast<double>(value);
}

// Elements [start, start + count) of the part of an array that an op uses.
struct Part {
  std::int64_t start, count;
};

namespace detail {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Memory = std::unique_ptr<T[], Free>;

// Memory for a copy, uninitialised. From some MB on, huge pages if the system has them: mapping pages of 4 KiB takes
// several times as long as the copy, in each thread that has not used as much memory before.
template <class T>
Memory<T> memory_of(std::int64_t count) {
  constexpr std::size_t huge = 2 << 20;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T), rounded = (bytes + huge - 1) / huge * huge;
  void* const memory = bytes < 2 * huge ? std::malloc(bytes + 1) : std::aligned_alloc(huge, rounded);
  if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes >= 2 * huge) madvise(memory, rounded, MADV_HUGEPAGE);  // a hint
#endif
  return Memory<T>(static_cast<T*>(memory));
}

#if DAGC_TARGET_CUDA

// Parts of an array, and the start of each in the gathered elements.
struct PartTable {
  static constexpr int kMost = 32;
  Part parts[kMost];
  std::int64_t to[kMost];
};

// A row of blocks a part.
template <class T>
__global__ void gather_parts(const T* from, PartTable table, T* to)
#if DAGC_HAS_KERNELS
{
  const Part part = table.parts[blockIdx.y];
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < part.count; i += std::int64_t{gridDim.x} * blockDim.x)
    to[table.to[blockIdx.y] + i] = from[part.start + i];
}
#else
    ;
#endif

#endif

}  // namespace detail

// Elements of an array as the host may read them, for code that may need few of them: they are copied when they are
// first read, in pieces, larger ones where it reads on; and all the rest once the pieces have cost as much as that.
template <class T>
class Elements {
 public:
  Elements(const Array<T>& a, std::int64_t start, std::int64_t count)
      : array_(a), start_(start), count_(count), copy_(detail::memory_of<T>(count)),
        present_(static_cast<std::size_t>((count + kPiece - 1) / kPiece)) {}

  template <class Index>  // of any type, so that the call is no worse a match than that of a pointer
  const T& operator[](Index index) {
    const std::int64_t i = static_cast<std::int64_t>(index);
    if (!present_[static_cast<std::size_t>(i / kPiece)]) read_from(i / kPiece);
    return copy_[static_cast<std::size_t>(i)];
  }

  // The first `length` elements of each of `pieces` equal parts, one after another; fewer where the parts are shorter.
  // One copy.
  std::vector<T> sample(std::int64_t pieces, std::int64_t length) const {
    const std::int64_t part = count_ / pieces, each = length < part ? length : part;
    std::vector<T> out(static_cast<std::size_t>(pieces * each));
    const T* const from = there();
    const std::size_t width = static_cast<std::size_t>(each) * sizeof(T), pitch = static_cast<std::size_t>(part) * sizeof(T);
    const Staging* const through = staging();
    const std::size_t bytes = static_cast<std::size_t>(pieces) * width;
    if (each == 0) return out;
    if (through != nullptr && pitch <= kPitch && bytes <= through->bytes) {
      DAGC_CUDA(cudaMemcpy2DAsync(through->buffer, width, from, pitch, width, static_cast<std::size_t>(pieces), cudaMemcpyDefault, through->stream));
      DAGC_CUDA(cudaStreamSynchronize(through->stream));
      std::memcpy(out.data(), through->buffer, bytes);
      return out;
    }
    if (pitch <= kPitch) {
      DAGC_CUDA(cudaMemcpy2D(out.data(), width, from, pitch, width, static_cast<std::size_t>(pieces), cudaMemcpyDefault));
    } else {
      for (std::int64_t p = 0; p < pieces; ++p)
        DAGC_CUDA(cudaMemcpy(out.data() + p * each, from + p * part, width, cudaMemcpyDefault));
    }
    return out;
  }

  // The elements of some parts, one after another. One copy to the host.
  std::vector<T> parts(const std::vector<Part>& wanted) const {
    std::int64_t all = 0;
    for (const Part& part : wanted) all += part.count;
    std::vector<T> out(static_cast<std::size_t>(all));
    if (all == 0) return out;
    const std::size_t bytes = out.size() * sizeof(T);
    const Staging* const through = staging();
    if (through != nullptr && bytes <= through->bytes) {
      gather(wanted, reinterpret_cast<T*>(through->buffer), through->stream);
      DAGC_CUDA(cudaStreamSynchronize(through->stream));
      std::memcpy(out.data(), through->buffer, bytes);
    } else {
      T* together = nullptr;
      DAGC_CUDA(cudaMalloc(&together, bytes));
      gather(wanted, together, nullptr);
      DAGC_CUDA(cudaMemcpy(out.data(), together, bytes, cudaMemcpyDefault));
      DAGC_CUDA(cudaFree(together));
    }
    return out;
  }

  // The sum, the largest, of f(elements, i) for i = 0 .. count - 1, in double precision; 0 for none. Computed where the array
  // is, and waited for where the number is used: f is for both sides, `[=] __host__ __device__ (const int* elements, std::int64_t i) { return ...; }`.
  template <class F>
  Reduction sum(std::int64_t count, F f) const {
    return detail::reduced<detail::Sum>(there(), count, f);
  }
  template <class F>
  Reduction most(std::int64_t count, F f) const {
    return detail::reduced<detail::Most>(there(), count, f);
  }

  // Their address for kernels that a feature launches, with a FeatureWorkspace (feature_workspace.hpp). Throws for an
  // array that is not in device memory, or of which the host has the newer copy.
  const T* device() const {
#if DAGC_TARGET_CUDA
    if (count_ > 0 && (array_.mirror != nullptr || array_.data == nullptr || !detail::on_device(array_.data)))
      throw std::logic_error("device() of an array that is on the host: an op on the gpu must be the first to use it");
#endif
    return array_.data + start_;
  }

  // All of them.
  operator const T*() {
    read(0, static_cast<std::int64_t>(present_.size()));
    return copy_.get();
  }

 private:
  const T* there() const { return (array_.mirror != nullptr ? array_.mirror : array_.data) + start_; }

  void gather(const std::vector<Part>& wanted, T* to, cudaStream_t stream) const {
#if DAGC_TARGET_CUDA
    if (wanted.size() <= detail::PartTable::kMost && detail::on_device(there())) {
      detail::PartTable table{};
      std::int64_t at = 0, most = 0;
      for (std::size_t p = 0; p < wanted.size(); ++p) {
        table.parts[p] = wanted[p];
        table.to[p] = at;
        at += wanted[p].count;
        most = wanted[p].count > most ? wanted[p].count : most;
      }
      const std::int64_t blocks = (most + 255) / 256;
      const dim3 grid(static_cast<unsigned>(blocks < 64 ? blocks : 64), static_cast<unsigned>(wanted.size()));
      launch(detail::gather_parts<T>, grid, dim3(256), 0, stream, there(), table, to);
      DAGC_CUDA(cudaGetLastError());
      return;
    }
#endif
    for (const Part& part : wanted) {
      const std::size_t bytes = static_cast<std::size_t>(part.count) * sizeof(T);
      if (bytes > 0) DAGC_CUDA(cudaMemcpyAsync(to, there() + part.start, bytes, cudaMemcpyDefault, stream));
      to += part.count;
    }
  }

  static constexpr std::int64_t kPiece = 4096;           // elements
  static constexpr std::int64_t kCopy = 128 * 1024;      // bytes that take about as long as starting a copy
  static constexpr std::size_t kPitch = 2'147'483'647;   // of a 2-D copy, at most

  void read_from(std::int64_t piece) {
    const std::int64_t pieces = static_cast<std::int64_t>(present_.size());
    ahead_ = piece == next_ ? 2 * ahead_ : 1;
    const bool all = ++copies_ * kCopy >= count_ * static_cast<std::int64_t>(sizeof(T));
    read(all ? 0 : piece, all ? pieces : piece + ahead_ < pieces ? piece + ahead_ : pieces);
  }

  void read(std::int64_t first, std::int64_t last) {
    next_ = last;
    while (first < last && present_[static_cast<std::size_t>(first)]) ++first;
    while (first < last && present_[static_cast<std::size_t>(last - 1)]) --last;
    if (first == last) return;
    const std::int64_t from = first * kPiece, to = last * kPiece < count_ ? last * kPiece : count_;
    fetch(array_, start_ + from, to - from, copy_.get() + from);
    for (std::int64_t p = first; p < last; ++p) present_[static_cast<std::size_t>(p)] = true;
  }

  Array<T> array_;
  std::int64_t start_, count_, next_ = -1, ahead_ = 1, copies_ = 0;
  detail::Memory<T> copy_;
  std::vector<bool> present_;
};

}  // namespace dagc
