// The kernels by which a runner digests memory (digest.hpp) and compares arrays (tune.hpp), and what launches them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "dagc/target.hpp"

#ifdef __CUDACC__
#define DAGC_BOTH_SIDES __host__ __device__
#else
#define DAGC_BOTH_SIDES
#endif

namespace dagc {

namespace detail {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
DAGC_BOTH_SIDES inline std::uint64_t mixed(std::uint64_t place, std::uint64_t value) {
  std::uint64_t x = (place + 1) * 0x9e3779b97f4a7c15ull ^ value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

#if DAGC_TARGET_CUDA

// Adds the digest of words [first, last) to `sum`.
template <class Word>
DAGC_LAUNCHER void issue_words(const Word* words, std::size_t first, std::size_t last, unsigned long long* sum);

// The largest distance between elements, and the largest of those that are wanted, as bits of doubles.
template <class T>
DAGC_LAUNCHER void issue_largest(const T* got, const T* want, std::int64_t n, unsigned long long* most);

#if DAGC_HAS_KERNELS

template <class Word>
__global__ void add_words(const Word* words, std::size_t first, std::size_t last, unsigned long long* sum) {
  std::uint64_t mine = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = first + blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < last; i += step)
    mine += mixed(i * sizeof(Word), words[i]);
  atomicAdd(sum, static_cast<unsigned long long>(mine));
}

template <class Word>
DAGC_LAUNCHER void issue_words(const Word* words, std::size_t first, std::size_t last, unsigned long long* sum) {
  launch(add_words<Word>, dim3(1024), dim3(256), 0, nullptr, words, first, last, sum);
}

// Distances and sizes are not negative, so their bits are ordered as they are, and NaN, which has all bits of the
// exponent, is the largest: one atomic maximum of integers finds a NaN too.
__device__ inline void raise_to(unsigned long long* most, double value) {
  atomicMax(most, static_cast<unsigned long long>(__double_as_longlong(value)));
}

template <class T>
__global__ void largest_difference(const T* got, const T* want, std::int64_t n, unsigned long long* most) {
  double off = 0, scale = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) {
    const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    if (isfinite(w)) scale = fmax(scale, fabs(w));
    if (got[i] == want[i] || (isnan(g) && isnan(w))) continue;
    const double d = fabs(g - w);  // 0 if 64-bit integers differ by less than the precision of double
    off = isfinite(d) ? fmax(off, d == 0 ? 2048 : d) : HUGE_VAL;
  }
  raise_to(most, off);
  raise_to(most + 1, scale);
}

template <class T>
DAGC_LAUNCHER void issue_largest(const T* got, const T* want, std::int64_t n, unsigned long long* most) {
  const unsigned blocks = n / 256 < 1023 ? static_cast<unsigned>(n / 256 + 1) : 1024;
  launch(largest_difference<T>, dim3(blocks), dim3(256), 0, nullptr, got, want, n, most);
}

#ifdef DAGC_KERNELS_APART
template void issue_words(const unsigned char*, std::size_t, std::size_t, unsigned long long*);
template void issue_words(const std::uint64_t*, std::size_t, std::size_t, unsigned long long*);
#define DAGC_COMPARES(T) template void dagc::detail::issue_largest<T>(const T*, const T*, std::int64_t, unsigned long long*)
#endif

#endif

#endif

}  // namespace detail

}  // namespace dagc
