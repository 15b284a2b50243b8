// Kernels as people write them, against plain C++. The same text compiles with nvcc and must pass there, too.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "collectives.hpp"
#include "dagc/math.hpp"
#include "dagc/target.hpp"
#include "groups.hpp"
#include "narrow.hpp"

namespace {

template <class T>
class Device {
 public:
  explicit Device(std::size_t n) : n_(n) { GOOD(cudaMalloc(&data_, n * sizeof(T))); }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    GOOD(cudaMemcpy(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { GOOD(cudaFree(data_)); }
  operator T*() const { return data_; }
  std::vector<T> get() const {
    GOOD(cudaGetLastError());
    GOOD(cudaDeviceSynchronize());
    std::vector<T> out(n_);
    GOOD(cudaMemcpy(out.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  std::size_t n_;
  T* data_ = nullptr;
};

std::vector<double> numbers(std::size_t n) {  // in [0, 1), always the same
  std::vector<double> out(n);
  std::uint64_t state = 1;
  for (double& x : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<double>(state >> 11) / 9007199254740992.0;
  }
  return out;
}
bool near(double a, double b, double tolerance) { return std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(b)); }

}  // namespace

DAGC_KERNELS_BEGIN

using real = double;
__global__ void dot_blocks(real* sums, const real* a, const real* b, int n) {
  __shared__ real s[256];
  real v = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) v += a[i] * (b ? b[i] : real(1));
  s[threadIdx.x] = v;
  for (int d = 128; d > 0; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = s[0];
}

__global__ void spmv_warp(float* y, const int* row_ptr, const int* col, const float* val, const float* x, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (i >= n) return;
  float sum = 0;
  for (int k = row_ptr[i] + lane; k < row_ptr[i + 1]; k += 32) sum += val[k] * __ldg(x + col[k]);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (lane == 0) y[i] = sum;
}

__global__ void histogram(unsigned* bins, const int* keys, int n, int n_bins) {
  extern __shared__ unsigned local[];
  for (int b = threadIdx.x; b < n_bins; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[keys[i]], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < n_bins; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}

__global__ void transpose(float* out, const float* in, int rows, int cols) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[size_t(y + j) * cols + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < rows && y + j < cols) out[size_t(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void stencil3(float* out, const float* in, int nx, int ny, int nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
      z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= nx || y >= ny || z >= nz) return;
  auto at = [&](int i, int j, int k) { return in[(size_t((k + nz) % nz) * ny + (j + ny) % ny) * nx + (i + nx) % nx]; };
  out[(size_t(z) * ny + y) * nx + x] = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) +
                                       at(x, y, z - 1) + at(x, y, z + 1) - 6 * at(x, y, z);
}

// Inclusive scan of a block: shuffles within a warp, shared memory across warps.
__global__ void scan(int* out, const int* in, int n) {
  __shared__ int warps[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int v = i < n ? in[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int left = __shfl_up_sync(0xffffffff, v, d);
    if (lane >= d) v += left;
  }
  if (lane == 31) warps[warp] = v;
  __syncthreads();
  if (warp == 0) {
    int w = lane < blockDim.x / 32 ? warps[lane] : 0;
    for (int d = 1; d < 32; d *= 2) {
      int left = __shfl_up_sync(0xffffffff, w, d);
      if (lane >= d) w += left;
    }
    warps[lane] = w;
  }
  __syncthreads();
  if (warp > 0) v += warps[warp - 1];
  if (i < n) out[i] = v;
}

// The last block to finish adds up what all have left.
__device__ unsigned blocks_done = 0;
__global__ void sum_in_one_launch(double* result, double* partial, const double* in, int n) {
  __shared__ double s[128];
  __shared__ bool last;
  double v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = 64; d > 0; d >>= 1) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    double all = 0;
    for (int b = 0; b < gridDim.x; ++b) all += partial[b];
    *result = all;
  }
}

__constant__ float weights[4];
__global__ void weighted(float4* out, const float4* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = in[i];
  out[i] = make_float4(v.x * weights[0], v.y * weights[1], v.z * weights[2], v.w * weights[3]);
}

template <class T, int kSize>
__global__ void tiled_gemm(T* c, const T* a, const T* b, int n) {
  __shared__ T as[kSize][kSize], bs[kSize][kSize];
  int row = blockIdx.y * kSize + threadIdx.y, col = blockIdx.x * kSize + threadIdx.x;
  T sum = 0;
  for (int t = 0; t < n; t += kSize) {
    as[threadIdx.y][threadIdx.x] = row < n && t + threadIdx.x < n ? a[row * n + t + threadIdx.x] : T(0);
    bs[threadIdx.y][threadIdx.x] = t + threadIdx.y < n && col < n ? b[(t + threadIdx.y) * n + col] : T(0);
    __syncthreads();
    for (int k = 0; k < kSize; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && col < n) c[row * n + col] = sum;
}

// Every function of a warp once; 40 threads, so that the second warp has 8 lanes.
__global__ void warp_functions(unsigned* out) {
  unsigned lane = threadIdx.x % 32, t = threadIdx.x;
  unsigned mask = t < 32 ? ~0u : 0xffu;
  unsigned* o = out + t * 16;
  o[0] = __shfl_sync(mask, t, 3);
  o[1] = __shfl_sync(mask, t, lane + 9, 8);
  o[2] = __shfl_up_sync(mask, t, 2);
  o[3] = __shfl_up_sync(mask, t, 1, 4);
  o[4] = __shfl_down_sync(mask, t, 1, 8);
  o[5] = __shfl_xor_sync(mask, t, 5);
  o[6] = __ballot_sync(mask, lane % 3 == 0);
  o[7] = __any_sync(mask, t == 35) + 2 * __all_sync(mask, t < 32);
  o[8] = __match_any_sync(mask, lane % 4);
  o[9] = __reduce_add_sync(mask, t) + __reduce_max_sync(mask, t) * 1000;
  o[10] =
      (unsigned)__shfl_sync(mask, (long long)t << 33, 1) + (unsigned)(__shfl_sync(mask, (long long)t << 33, 1) >> 33);
  o[11] = (unsigned)(__shfl_xor_sync(mask, t * 0.5, 1) * 4) + (unsigned)(__shfl_xor_sync(mask, t * 0.5f, 1) * 4);
  if (lane % 2) {  // two halves of a warp, apart
    o[12] = __shfl_down_sync(mask & 0xaaaaaaaau, t, 2, 8);
    __syncwarp(mask & 0xaaaaaaaau);
  } else {
    o[12] = __reduce_add_sync(mask & 0x55555555u, t);
  }
  __syncwarp(mask);
  o[13] = __popc(mask) + 100 * __ffs(t) + 10000 * __clz(t);
  o[14] = __syncthreads_count(t % 5 == 0) + 100 * __syncthreads_or(t == 39) + 1000 * __syncthreads_and(t < 39);
  o[15] = __brev(t) ^ __umulhi(t * 0x10000001u, 77u);
}

struct Extreme {  // 12 bytes
  float value;
  int at, many;
};

__global__ void groups(float* out, cuDoubleComplex* products, const float* in) {
  namespace cg = cooperative_groups;
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  const auto eight = cg::tiled_partition<8>(warp);
  const unsigned t = block.thread_rank();
  float* o = out + 8 * t;
  o[0] = static_cast<float>(warp.meta_group_rank() * 100 + warp.meta_group_size() * 10 + eight.meta_group_rank());
  o[1] = cg::reduce(eight, in[t], cg::plus<float>());
  const Extreme best = cg::reduce(warp, Extreme{in[t], static_cast<int>(t), 1}, [](Extreme a, Extreme b) {
    Extreme r = a.value > b.value ? a : b;
    r.many = a.many + b.many;
    return r;
  });
  o[2] = best.value + static_cast<float>(1000 * best.at);
  o[3] = static_cast<float>(best.many);
  o[4] = cg::inclusive_scan(eight, in[t], cg::plus<float>());
  o[5] = static_cast<float>(cg::exclusive_scan(eight, static_cast<int>(t)));
  const unsigned thirds = eight.ballot(eight.thread_rank() % 3 == 0), forty = warp.any(t == 40) != 0;
  o[6] = static_cast<float>(thirds + 1000 * forty);
  o[7] = eight.shfl_down(in[t], 1) + eight.shfl(in[t], 2);
  block.sync();
  const cuDoubleComplex z = make_cuDoubleComplex(t, 1), w = make_cuDoubleComplex(2, -1.0 * t);
  products[t] = cuCsub(cuCadd(cuCdiv(cuCmul(z, w), w), cuConj(z)), make_cuDoubleComplex(cuCabs(w), cuCimag(z)));
}

__global__ void early_exits(int* out) {  // threads leave at different times; barriers count those that stay
  int t = threadIdx.x;
  for (int round = 0; round < 8; ++round) {
    if (t % 8 == round) return;
    __syncthreads();
    out[t] = round + 1;
  }
}

__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&i[0], t);
  atomicSub(&i[1], t);
  atomicMin(&i[2], t - 50);
  atomicMax(&i[3], t);
  atomicOr(&i[4], 1 << t % 31);
  atomicAnd(&i[5], ~(1 << t % 7));
  atomicXor(&i[6], t);
  atomicInc(&u[0], 99);
  atomicDec(&u[1], 99);
  atomicMax(&u[2], unsigned(t));
  atomicCAS(&u[3], 0u, 5u);
  atomicAdd(&l[0], 1ull << 33);
  atomicMax(&l[1], (unsigned long long)t << 32);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  if (t == 7) atomicExch(&u[4], 9u);
}

__global__ void arithmetic(float* out, float x) {
  out[0] = rsqrtf(x) + __fmaf_rn(x, 2.0f, 1.0f) + fminf(x, 1.0f) + max(x, 2.0f) + min(3, 5);
  out[1] = __saturatef(x) + __expf(0.0f) + __fdividef(x, 2.0f) + abs(-x) + sqrt(x) + fabsf(-x);
  out[2] = __int_as_float(__float_as_int(x)) + __mulhi(1 << 30, 8) + __float2int_rn(2.5f) + dagc::floor_div(-7, 2);
}

// x is 1.
__global__ void narrow(unsigned long long* wrong, __half2* sums, float x) {
  unsigned long long bits = 0;
  int at = 0;
  const auto expect = [&](bool good) { bits |= static_cast<unsigned long long>(!good) << at++; };
  const __half one = __float2half(x), third = __hdiv(one, __float2half(3 * x));
  expect(__half_as_ushort(third) == 0x3555 && __half_as_ushort(__float2half(x * 65520)) == 0x7c00);  // to the nearest
  expect(__half_as_ushort(__float2half(x * 65519)) == 0x7bff && __half_as_ushort(__float2half_rz(x * 1e6f)) == 0x7bff);
  expect(__half_as_ushort(__float2half(x * 2.98023224e-8f)) == 0 && __half_as_ushort(__float2half(x * 8.94069672e-8f)) == 2);
  expect(__half_as_ushort(__float2half_ru(x * 1e-9f)) == 1 && __half_as_ushort(__float2half_rd(-x * 1e-9f)) == 0x8001);
  expect(__half_as_ushort(__float2half_rd(x * 2049)) == 0x6800 && __half2float(__ushort_as_half(1)) == x * 5.96046448e-8f);
  expect(__hgt(one, third) && !__hisnan(one) && __hisinf(__float2half(-x * 1e6f)) == -1 && __hmax(third, one) == one);
  expect(__half2float(__hfma(third, third, one)) == x * 1.11132812f && __half2float(__hneg(hsqrt(one + one + one + one))) == -2);
  expect(__half2int_rn(__float2half(x * 2.5f)) == 2 && __half2int_rz(__float2half(x * -2.5f)) == -2);
  const __half2 two = __hadd2(__floats2half2_rn(x, 2 * x), __half2half2(third));
  expect(__low2float(two) == x * 1.33300781f && __high2float(two) == x * 2.33398438f);
  const __nv_bfloat16 coarse = __float2bfloat16(x * 1.005859375f);
  expect(__bfloat16_as_ushort(coarse) == 0x3f81 && __bfloat162float(__hmul(coarse, coarse)) == x * 1.015625f);
  expect(__bfloat16_as_ushort(__float2bfloat16(x * 1.00390625f)) == 0x3f80);  // a tie, to even
  const __half mine = __float2half(x * static_cast<float>(threadIdx.x));
  expect(__half2float(__shfl_xor_sync(0xffffffffu, mine, 1)) == x * static_cast<float>(threadIdx.x ^ 1));
  atomicAdd(sums, __floats2half2_rn(x, __half2float(mine)));
  if (bits != 0) *wrong = bits;
}

// One bit for each line that is wrong. x and y are 4, i is 0x010203fc, u is 0xf0020304.
__global__ void more_arithmetic(unsigned long long* wrong, const float* ones, float x, double y, int i, unsigned int u) {
  float s, c;
  sincospif(x + 0.5f, &s, &c);
  unsigned long long bits = 0;
  int at = 0;
  const auto expect = [&](bool good) { bits |= static_cast<unsigned long long>(!good) << at++; };
  expect(s == 1.0f && c == 0.0f);
  expect(sinpi(y) == 0.0 && cospi(y + 1) == -1.0 && fabs(sinpi(y + 0.25) - 0.70710678118654752440) < 1e-15);
  expect(fabsf(norm3df(x, 4.0f, 7.0f) - 9.0f) < 1e-5f && fabs(rhypot(3.0, y) - 0.2) < 1e-15);
  expect(fabs(normcdf(y - 4) - 0.5) < 1e-15 && fdividef(x, 2.0f) == 2.0f);
  expect(__dp4a(i, 0x01ff0203, -1) == -4 * 3 + 3 * 2 - 2 + 1 - 1);
  expect(__dp4a(u, 0x01000002u, 1u) == 0xf0u + 2 * 0x04u + 1u);
  expect(__byte_perm(u, 0x55667788u, 0x7410u) == 0x55880304u);
  expect(__funnelshift_l(u, 1u, 4u) == 0x1fu && __funnelshift_r(u, 1u, 36u) == 0x1f002030u);
  expect(__funnelshift_lc(u, 1u, 32u) == u && __funnelshift_rc(u, 1u, 40u) == 1u);
  expect(__mul64hi(-(1LL << 62), 8) == -2 && __umul64hi(1ULL << 63, u) == u >> 1);
  expect(__usad(u, u + 3, 1u) == 4u && __sad(-2000000000, 2000000000, 0u) == 4000000000u);
  expect(__hadd(-3, 0) == -2 && __rhadd(-3, 0) == -1 && __uhadd(u, u) == u && __urhadd(u, u - 1) == u);
  expect(__brevll(1ULL) == 1ULL << 63 && __umul24(0x01000002u, 3u) == 6u);
  expect(__float2int_rd(-x - 0.5f) == -5 && __double2int_ru(y + 0.25) == 5 && __float2uint_rn(x + 1.5f) == 6u);
  expect(__float2int_rz(x * 1e20f) == 2147483647 && __double2uint_rz(-y) == 0u);
  expect(__double2ll_rn(y * 1e30) == 9223372036854775807LL && __float2ull_rz(x) == 4ULL);
  expect(__hiloint2double(__double2hiint(y), __double2loint(y)) == y && __uint2double_rn(u) == 4026663684.0);
  // Rounded in each direction: 1/3 in binary is below a third if rounded down.
  const float one = x / 4, three = x - 1;
  const double d_one = y / 4, d_three = y - 1;
  expect(__fdiv_ru(one, three) > __fdiv_rd(one, three) && __fdiv_rz(-one, three) == -__fdiv_rd(one, three));
  expect(__ddiv_ru(d_one, d_three) > __ddiv_rd(d_one, d_three) && __ddiv_rz(-d_one, d_three) == -__ddiv_rd(d_one, d_three));
  expect(__fadd_ru(one, 1e-9f) > one && __fadd_rd(one, 1e-9f) == one && __fadd_rn(one, 1e-9f) == one);
  expect(__dsub_rd(d_one, 1e-30) < d_one && __dsub_ru(d_one, 1e-30) == d_one && __dadd_rz(-d_one, 1e-30) > -d_one);
  expect(__fmul_ru(1 + 0x1p-23f * one, 1 + 0x1p-23f) > __fmul_rz(1 + 0x1p-23f * one, 1 + 0x1p-23f));
  expect(__dmul_ru(1 + 0x1p-52 * d_one, 1 + 0x1p-52) > __dmul_rn(1 + 0x1p-52 * d_one, 1 + 0x1p-52));
  expect(__frcp_ru(three) - __frcp_rd(three) == 0x1p-25f && __drcp_rn(d_three) == d_one / d_three && __drcp_ru(d_three) > __drcp_rz(d_three));
  expect(__fsqrt_rn(x) == 2 && __dsqrt_rn(y) == 2 && __fsqrt_ru(three) > __fsqrt_rd(three) && __dsqrt_ru(d_three) > __dsqrt_rd(d_three));
  expect(__fmaf_ru(x, x, 1e-9f) > 16 && __fma_rd(y, y, -1e-30) < 16 && __fmaf_ieee_rn(x, x, 1e-9f) == 16 && __fma_rn(y, y, 1) == 17);
  expect(__double2float_ru(1 + 1e-12 * d_one) > 1 && __double2float_rd(1 + 1e-12 * d_one) == 1 && __frsqrt_rn(x) == 0.5f);
  expect(__int2float_ru(i + 1) > __int2float_rz(i + 1) && __ll2double_rd((1LL << 60) + i) < __ll2double_ru((1LL << 60) + i));
  expect(__uint2float_rn(u) == static_cast<float>(u) && __ull2float_rz(~0ULL) < __ull2float_ru(~0ULL));
  expect(__dp2a_lo(0x0002ffff, 0x0403fe01, 5) == -1 - 4 + 5 && __dp2a_hi(0x00020001u, 0x0403fe01u, 5u) == 3 + 8 + 5);
  expect(__ldca(ones) == one && __ldcv(ones) == one && __ldlu(ones) == one);  // of global memory only
  expect(fabsf(__tanhf(one) - 0.7615942f) < 5e-4f);  // an approximation on GPUs
  *wrong = bits;
}

DAGC_KERNELS_END

namespace {

void test_dot() {
  const int n = 12345;
  const auto a = numbers(n);
  const Device<double> x(a), sums(64), result(1);
  dagc::launch(dot_blocks, 64, 256, 0, nullptr, sums, x, x, n);
  dagc::launch(dot_blocks, 1, 256, 0, nullptr, result, sums, nullptr, 64);
  double expected = 0;
  for (const double v : a) expected += v * v;
  EXPECT(near(result.get()[0], expected, 1e-12));
}

void test_spmv() {
  const int n = 1001;
  std::vector<int> ptr{0}, col;
  std::vector<float> val, x(n);
  const auto random = numbers(200'000);
  std::size_t r = 0;
  for (float& v : x) v = static_cast<float>(random[r++]);
  for (int i = 0; i < n; ++i) {
    for (int k = static_cast<int>(random[r++] * 90); k > 0; --k) {
      col.push_back(static_cast<int>(random[r++] * n));
      val.push_back(static_cast<float>(random[r++] - 0.5));
    }
    ptr.push_back(static_cast<int>(col.size()));
  }
  const Device<int> d_ptr(ptr), d_col(col);
  const Device<float> d_val(val), d_x(x), y(n);
  for (const int block : {64, 128, 256, 512}) {
    dagc::launch(spmv_warp, (32 * n + block - 1) / block, block, 0, nullptr, y, d_ptr, d_col, d_val, d_x, n);
    const auto got = y.get();
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int k = ptr[i]; k < ptr[i + 1]; ++k) sum += double(val[k]) * x[col[k]];
      EXPECT(near(got[i], sum, 1e-5));
    }
  }
}

void test_histogram() {
  const int n = 30'000, bins = 300;
  std::vector<int> keys(n);
  std::vector<unsigned> expected(bins);
  const auto random = numbers(n);
  for (int i = 0; i < n; ++i) ++expected[keys[i] = static_cast<int>(random[i] * random[i] * bins)];
  const Device<int> d_keys(keys);
  const Device<unsigned> counts(std::vector<unsigned>(bins, 0));
  cudaStream_t a, b;
  GOOD(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  GOOD(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  GOOD(cudaDeviceSynchronize());
  dagc::launch(histogram, 7, 192, bins * sizeof(unsigned), a, counts, d_keys, n / 2,
               bins);  // two at once: atomics meet
  dagc::launch(histogram, 5, 256, bins * sizeof(unsigned), b, counts, d_keys + n / 2, n / 2, bins);
  EXPECT(counts.get() == expected);
  GOOD(cudaStreamDestroy(a));
  GOOD(cudaStreamDestroy(b));
}

void test_transpose() {
  const int rows = 77, cols = 130;
  std::vector<float> in(static_cast<std::size_t>(rows) * cols);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  const Device<float> d_in(in), d_out(in.size());
  dagc::launch(transpose, dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, nullptr, d_out, d_in, rows, cols);
  const auto out = d_out.get();
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j)
      EXPECT(out[static_cast<std::size_t>(j) * rows + i] == in[static_cast<std::size_t>(i) * cols + j]);
}

void test_stencil() {
  const int nx = 19, ny = 13, nz = 7;
  std::vector<float> in(static_cast<std::size_t>(nx) * ny * nz);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 97);
  const Device<float> d_in(in), d_out(in.size());
  dagc::launch(stencil3, dim3(3, 4, 4), dim3(8, 4, 2), 0, nullptr, d_out, d_in, nx, ny, nz);
  const auto out = d_out.get();
  auto at = [&](int x, int y, int z) {
    return in[(static_cast<std::size_t>((z + nz) % nz) * ny + static_cast<std::size_t>((y + ny) % ny)) * nx +
              static_cast<std::size_t>((x + nx) % nx)];
  };
  for (int z = 0, i = 0; z < nz; ++z)
    for (int y = 0; y < ny; ++y)
      for (int x = 0; x < nx; ++x, ++i)
        EXPECT(out[i] == at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) + at(x, y, z - 1) +
                             at(x, y, z + 1) - 6 * at(x, y, z));
}

void test_scan() {
  for (const int block : {32, 96, 256, 1024}) {
    const int n = 2 * block - 5;
    std::vector<int> in(n);
    for (int i = 0; i < n; ++i) in[i] = i % 11 - 3;
    const Device<int> d_in(in), d_out(n);
    dagc::launch(scan, 2, block, 0, nullptr, d_out, d_in, n);
    const auto out = d_out.get();
    for (int i = 0, sum = 0; i < n; ++i) {
      sum = i == block ? in[i] : sum + in[i];
      EXPECT(out[i] == sum);
    }
  }
}

void test_sum_in_one_launch() {
  const int n = 9999;
  const auto in = numbers(n);
  double expected = 0;
  for (const double v : in) expected += v;
  const Device<double> d_in(in), partial(16), result(1);
  for (int i = 0; i < 3; ++i) {
    dagc::launch(sum_in_one_launch, 16, 128, 0, nullptr, result, partial, d_in, n);
    EXPECT(near(result.get()[0], expected, 1e-12));
  }
}

void test_constant_and_vectors() {
  const float host[4] = {1, 2, 3, 4};
  GOOD(cudaMemcpyToSymbol(weights, host, sizeof host));
  const std::vector<float4> in(100, make_float4(1, 1, 1, 2));
  const Device<float4> d_in(in), d_out(100);
  dagc::launch(weighted, 4, 32, 0, nullptr, d_out, d_in, 100);
  for (const float4& v : d_out.get()) EXPECT(v.x == 1 && v.y == 2 && v.z == 3 && v.w == 8);
  EXPECT(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double2) == 16 && sizeof(uchar4) == 4);
}

void test_gemm() {
  const int n = 70;
  const auto a = numbers(n * n);
  const Device<double> x(a), c(n * n);
  dagc::launch(tiled_gemm<double, 16>, dim3(5, 5), dim3(16, 16), 0, nullptr, c, x, x, n);
  const auto out = c.get();
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * a[k * n + j];
      EXPECT(near(out[i * n + j], sum, 1e-12));
    }
}

unsigned bits_reversed(unsigned x) {
  unsigned out = 0;
  for (int i = 0; i < 32; ++i) out |= (x >> i & 1) << (31 - i);
  return out;
}
__global__ void collectives(int* out, const int* in) {
  using Reduce = cub::BlockReduce<int, 64>;
  using Scan = cub::BlockScan<int, 64>;
  __shared__ typename Reduce::TempStorage reduce;
  __shared__ typename Scan::TempStorage scan;
  const int t = static_cast<int>(threadIdx.x), value = in[t];
  int before = 0, total = 0;
  Scan(scan).ExclusiveSum(value, before, total);
  const int sum = Reduce(reduce).Sum(value);
  __syncthreads();
  const int first = Reduce(reduce).Sum(0);
  out[t] = before + total * (t % 2);
  if (t == 0) out[64] = sum + first;
}

void test_collectives() {
  std::vector<int> in(64);
  for (int i = 0; i < 64; ++i) in[i] = i * 37 % 64;
  const Device<int> d_in(in), d_out(65);
  dagc::launch(collectives, 1, 64, 0, nullptr, d_out, d_in);
  const auto out = d_out.get();
  int before = 0;
  for (int t = 0; t < 64; ++t) {
    EXPECT(out[t] == before + 2016 * (t % 2));
    before += in[t];
  }
  EXPECT(out[64] == 2016);
  std::size_t bytes = 0;
  int* data = d_out;
  GOOD(cub::DeviceScan::ExclusiveSum(nullptr, bytes, static_cast<const int*>(d_in), data, 64));
  const Device<char> memory(bytes);
  GOOD(cub::DeviceScan::ExclusiveSum(static_cast<void*>(memory), bytes, static_cast<const int*>(d_in), data, 64));
  EXPECT(d_out.get()[63] == 2016 - in[63]);
}

void test_groups() {
  std::vector<float> in(64);
  for (int i = 0; i < 64; ++i) in[i] = static_cast<float>(i * 37 % 64);
  const Device<float> d_in(in), d_out(64 * 8);
  const Device<cuDoubleComplex> d_products(64);
  dagc::launch(groups, 1, dim3(16, 4), 0, nullptr, d_out, d_products, d_in);
  const auto out = d_out.get();
  const auto products = d_products.get();
  for (int t = 0; t < 64; ++t) {
    const int first = t / 8 * 8, warp = t / 32 * 32;
    float sum = 0, scan = 0;
    int ranks = 0;
    for (int i = first; i < first + 8; ++i) {
      sum += in[i];
      if (i <= t) scan += in[i];
      if (i < t) ranks += i;
    }
    const int at = static_cast<int>(std::max_element(&in[warp], &in[warp] + 32) - &in[0]);
    const float* o = &out[8 * t];
    EXPECT(o[0] == static_cast<float>(t / 32 * 100 + 20 + t % 32 / 8));
    EXPECT(o[1] == sum && o[4] == scan && o[5] == static_cast<float>(ranks));
    EXPECT(o[2] == in[at] + static_cast<float>(1000 * at) && o[3] == 32);
    EXPECT(o[6] == static_cast<float>(0x49 + (t < 32 ? 0 : 1000)));
    EXPECT(o[7] == in[t % 8 == 7 ? t : t + 1] + in[first + 2]);
    EXPECT(near(products[t].x, 2.0 * t - std::hypot(2.0, t), 1e-12) && std::fabs(products[t].y + 1) < 1e-12);
  }
}

void test_warp_functions() {
  const Device<unsigned> d_out(40 * 16);
  dagc::launch(warp_functions, 1, 40, 0, nullptr, d_out);
  const auto out = d_out.get();
  for (unsigned t = 0; t < 40; ++t) {
    const unsigned first = t / 32 * 32, lane = t % 32, lanes = t < 32 ? 32 : 8, mask = t < 32 ? ~0u : 0xffu;
    unsigned thirds = 0, alike = 0, total = 0, even = 0, ffs = 0, clz = 32;
    for (unsigned i = 0; i < lanes; ++i) {
      thirds |= (i % 3 == 0) << i;
      alike |= (i % 4 == lane % 4) << i;
      total += first + i;
      even += i % 2 ? 0 : first + i;
    }
    for (unsigned i = 0; i < 32; ++i) {
      if (t >> i & 1) {
        ffs = ffs ? ffs : i + 1;
        clz = 31 - i;
      }
    }
    const unsigned* o = &out[t * 16];
    EXPECT(o[0] == first + 3);
    EXPECT(o[1] == first + lane / 8 * 8 + (lane + 9) % 8);
    EXPECT(o[2] == (lane < 2 ? t : t - 2));
    EXPECT(o[3] == (lane % 4 < 1 ? t : t - 1));
    EXPECT(o[4] == (lane % 8 == 7 ? t : t + 1));
    EXPECT(o[5] == first + (lane ^ 5));
    EXPECT(o[6] == thirds);
    EXPECT(o[7] == (t < 32 ? 2 : 1));
    EXPECT(o[8] == alike);
    EXPECT(o[9] == total + (first + lanes - 1) * 1000);
    EXPECT(o[10] == first + 1);
    EXPECT(o[11] == 4 * (t ^ 1));
    EXPECT(o[12] == (lane % 2 ? (lane % 8 > 5 ? t : t + 2) : even));
    EXPECT(o[13] == static_cast<unsigned>(__builtin_popcount(mask)) + 100 * ffs + 10000 * clz);
    EXPECT(o[14] == 8 + 100 * 1 + 1000 * 0);
    EXPECT(o[15] == (bits_reversed(t) ^ static_cast<unsigned>((t * 0x10000001ull & 0xffffffffull) * 77u >> 32)));
  }
}

void test_early_exits() {
  for (const int block : {8, 50, 256}) {
    const Device<int> d_out(std::vector<int>(block, 0));
    dagc::launch(early_exits, 3, block, 0, nullptr, d_out);
    const auto out = d_out.get();
    for (int t = 0; t < block; ++t) EXPECT(out[t] == t % 8);
  }
}

void test_atomics() {
  const Device<int> i(std::vector<int>{0, 0, 0, 0, 0, ~0, 0});
  const Device<unsigned> u(std::vector<unsigned>{0, 0, 0, 0, 0});
  const Device<unsigned long long> l(std::vector<unsigned long long>{0, 0});
  const Device<float> f(std::vector<float>{0});
  const Device<double> d(std::vector<double>{0});
  dagc::launch(atomics, 10, 50, 0, nullptr, i, u, l, f, d);
  int xors = 0;
  for (int t = 0; t < 500; ++t) xors ^= t;
  EXPECT((i.get() == std::vector<int>{124750, -124750, -50, 499, 0x7fffffff, ~0x7f, xors}));
  EXPECT((u.get() == std::vector<unsigned>{0, 0, 499, 5, 9}));
  EXPECT((l.get() == std::vector<unsigned long long>{500ull << 33, 499ull << 32}));
  EXPECT(f.get()[0] == 250 && d.get()[0] == 125);
}

void test_arithmetic() {
  const Device<float> d_out(3);
  dagc::launch(arithmetic, 1, 1, 0, nullptr, d_out, 4.0f);
  const auto out = d_out.get();
  EXPECT(near(out[0], 0.5 + 9 + 1 + 4 + 3, 1e-6));
  EXPECT(near(out[1], 1 + 1 + 2 + 4 + 2 + 4, 1e-6));
  EXPECT(near(out[2], 4 + 2 + 2 - 4, 1e-6));
}

void test_more_arithmetic() {
  const Device<unsigned long long> wrong(1);
  const Device<float> ones(std::vector<float>{1.0f});
  dagc::launch(more_arithmetic, 1, 1, 0, nullptr, wrong, ones, 4.0f, 4.0, 0x010203fc, 0xf0020304u);
  EXPECT(wrong.get()[0] == 0);
}

void test_narrow() {
  const Device<unsigned long long> wrong(std::vector<unsigned long long>{0});
  const Device<__half2> sums(1);
  GOOD(cudaMemset(sums, 0, 4));
  dagc::launch(narrow, 1, 32, 0, nullptr, wrong, sums, 1.0f);
  EXPECT(wrong.get()[0] == 0);
  EXPECT(__half2float(sums.get()[0].x) == 32 && __half2float(sums.get()[0].y) == 496);
}

void test_math() {
  for (int a = -20; a <= 20; ++a)
    for (int b = -7; b <= 7; ++b) {
      if (b == 0) continue;
      EXPECT(dagc::floor_div(a, b) == static_cast<std::int64_t>(std::floor(double(a) / b)));
      EXPECT(dagc::ceil_div(a, b) == static_cast<std::int64_t>(std::ceil(double(a) / b)));
      EXPECT(dagc::floor_mod(a, b) == a - b * dagc::floor_div(a, b));
    }
  static_assert(dagc::floor_div(INT64_MIN, -1) == INT64_MIN && dagc::ceil_div(INT64_MIN, -1) == INT64_MIN);
  static_assert(dagc::floor_mod(INT64_MIN, -1) == 0 && dagc::floor_div(7, -1) == -7 && dagc::ceil_div(7, -1) == -7);
  static_assert(dagc::ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1 && dagc::floor_div(INT64_MIN, 2) == INT64_MIN / 2);
}

constexpr Case kCases[] = {
    {"dot", test_dot},
    {"spmv", test_spmv},
    {"histogram", test_histogram},
    {"transpose", test_transpose},
    {"stencil", test_stencil},
    {"scan", test_scan},
    {"sum_in_one_launch", test_sum_in_one_launch},
    {"constant_and_vectors", test_constant_and_vectors},
    {"gemm", test_gemm},
    {"warp_functions", test_warp_functions},
    {"collectives", test_collectives},
    {"groups", test_groups},
    {"early_exits", test_early_exits},
    {"atomics", test_atomics},
    {"arithmetic", test_arithmetic},
    {"more_arithmetic", test_more_arithmetic},
    {"narrow", test_narrow},
    {"math", test_math},
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
