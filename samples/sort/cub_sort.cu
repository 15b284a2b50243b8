// Sorts by CUB, a library of the CUDA toolkit: radix and merge.
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "cub_sort.cu: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Radix sort orders NaN by their bits, so the comparison does too.
struct Before {
  static __device__ std::uint32_t key(float x) {
    const std::uint32_t bits = __float_as_uint(x);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }
  static __device__ std::uint64_t key(double x) {
    const std::uint64_t bits = static_cast<std::uint64_t>(__double_as_longlong(x));
    return bits >> 63 != 0 ? ~bits : bits | 0x8000000000000000u;
  }
  template <class Float>
  __device__ bool operator()(Float a, Float b) const {
    return key(a) < key(b);
  }
};

// `call(storage, bytes)` twice, as CUB wants it: how much it needs, then the work. `bytes`: how much there is.
template <class Call>
void with_storage(void* storage, std::size_t bytes, const char* what, Call call) {
  std::size_t needed = 0;
  check(call(nullptr, needed), what);
  check(needed <= bytes ? cudaSuccess : cudaErrorMemoryAllocation, what);
  check(call(storage, needed), what);
}

}  // namespace

constexpr std::size_t kFixed = std::size_t{8} << 20;  // bytes of storage, and twice the keys, as in sort.dag

void sort_cub_radix(float* out32, double* out64, const float* in32, const double* in64, int, int n32, int n64, int,
                    std::uint8_t* storage, cudaStream_t stream) {
  if (n32 > 0)
    with_storage(storage, kFixed + 8 * std::size_t(n32), "cub::DeviceRadixSort", [&](void* at, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(at, bytes, in32, out32, n32, 0, 32, stream);
    });
  if (n64 > 0)
    with_storage(storage, kFixed + 16 * std::size_t(n64), "cub::DeviceRadixSort", [&](void* at, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(at, bytes, in64, out64, n64, 0, 64, stream);
    });
}

void sort_cub_merge(float* out32, double* out64, const float* in32, const double* in64, int, int n32, int n64, int,
                    std::uint8_t* storage, cudaStream_t stream) {
  if (n32 > 0)
    with_storage(storage, kFixed + 8 * std::size_t(n32), "cub::DeviceMergeSort", [&](void* at, std::size_t& bytes) {
      return cub::DeviceMergeSort::SortKeysCopy(at, bytes, in32, out32, n32, Before{}, stream);
    });
  if (n64 > 0)
    with_storage(storage, kFixed + 16 * std::size_t(n64), "cub::DeviceMergeSort", [&](void* at, std::size_t& bytes) {
      return cub::DeviceMergeSort::SortKeysCopy(at, bytes, in64, out64, n64, Before{}, stream);
    });
}
