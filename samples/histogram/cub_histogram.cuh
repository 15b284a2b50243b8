// Histogram by CUB, a library of the CUDA toolkit.
#pragma once

#include <cub/device/device_histogram.cuh>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// `storage`: 16 MiB of scratch.
template <class Element, int bins>
void histogram_cub(std::uint32_t* bin_count, const Element* values, std::int64_t n, std::uint8_t* storage,
                   cudaStream_t stream) {
  const auto check = [](cudaError_t status) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "cub_histogram.cuh: cub::DeviceHistogram: %s\n", cudaGetErrorString(status));
    std::exit(1);
  };
  std::size_t bytes = 0;
  const auto count = [&](void* at) {
    return cub::DeviceHistogram::HistogramEven(at, bytes, values, bin_count, bins + 1, 0, bins, n, stream);
  };
  check(count(nullptr));
  check(bytes <= std::size_t{16} << 20 ? cudaSuccess : cudaErrorMemoryAllocation);
  check(count(storage));
}
