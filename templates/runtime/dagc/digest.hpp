// Digests of memory: whether bytes changed, without a copy of them.
//
// The digest of a range is the sum over its bytes, or words, of a hash of position and value, so that it does not depend on
// the order of computation, and digests of ranges can be added. It is not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dagc/check.hpp"
#include "dagc/runner_kernels.hpp"
#include "dagc/target.hpp"

namespace dagc {

namespace detail {

#if DAGC_TARGET_CUDA
template <class Word>
std::uint64_t device_words(const void* data, std::size_t first, std::size_t last) {
  unsigned long long* sum = nullptr;
  unsigned long long out = 0;
  DAGC_CUDA(cudaMalloc(&sum, sizeof *sum));
  DAGC_CUDA(cudaMemset(sum, 0, sizeof *sum));
  issue_words(static_cast<const Word*>(data), first, last, sum);
  DAGC_CUDA(cudaGetLastError());
  DAGC_CUDA(cudaMemcpy(&out, sum, sizeof out, cudaMemcpyDeviceToHost));
  DAGC_CUDA(cudaFree(sum));
  return out;
}
#endif

template <class Word>
std::uint64_t host_words(const void* data, std::size_t first, std::size_t last) {
  std::uint64_t sum = 0;
  for (std::size_t i = first; i < last; ++i) {
    Word word;
    std::memcpy(&word, static_cast<const char*>(data) + i * sizeof(Word), sizeof(Word));
    sum += mixed(i * sizeof(Word), word);
  }
  return sum;
}

template <class Word>
std::uint64_t words(const void* data, std::size_t first, std::size_t last, [[maybe_unused]] bool on_device) {
  if (first >= last) return 0;
#if DAGC_TARGET_CUDA
  if (on_device) return device_words<Word>(data, first, last);
#endif
  return host_words<Word>(data, first, last);
}

}  // namespace detail

// Digest of the bytes [begin, end) of an allocation. Waits for the device.
inline std::uint64_t digest(const void* data, std::size_t begin, std::size_t end, bool on_device) {
  constexpr std::size_t wide = sizeof(std::uint64_t);
  const std::size_t first = (begin + wide - 1) / wide, last = end / wide;
  if (first >= last) return detail::words<unsigned char>(data, begin, end, on_device);
  return detail::words<unsigned char>(data, begin, first * wide, on_device) +
         detail::words<std::uint64_t>(data, first, last, on_device) +
         detail::words<unsigned char>(data, last * wide, end, on_device);
}

}  // namespace dagc
