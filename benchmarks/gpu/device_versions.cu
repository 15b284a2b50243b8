// Versions of samples/gemm, nbody, pagerank and kmotif at given sizes, side by side: right, and how fast?
//
//   bash benchmarks/gpu/device_versions.sh OUT [SECONDS [nbody|gemm|pagerank|kmotif]]   # begins nothing after so many
//
// Medians of calls from host data to host data through page-locked memory; of versions on the GPU also from device data to
// device data. `error`: the largest difference over the largest element, of the accelerations from the direct sums, of 4000
// elements of a product from sums in double precision, of ranks from those of cpu.pull; 1 where counts of motifs differ.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <parallel/algorithm>
#include <random>
#include <string>
#include <vector>

using Real = float;
using Count = std::uint64_t;
using Stream = cudaStream_t;

__global__ void gemm_thread(Real*, const Real*, const Real*, int, int, int, bool);
__global__ void gemm_tiled(Real*, const Real*, const Real*, int, int, int, bool);
__global__ void gemm_registers(Real*, const Real*, const Real*, int, int, int, bool);
void gemm_cublas(Real*, const Real*, const Real*, int, int, int, bool, Stream);
void gemm_tensor(Real*, const Real*, const Real*, int, int, int, bool, Stream);
void gemm_half(Real*, const Real*, const Real*, int, int, int, bool, Real*, Real*, Real*, Stream);
void gemm_tensor_split(Real*, const Real*, const Real*, int, int, int, bool, Real*, Real*, Stream);
void nbody_openmp(Real*, Real*, const Real*, const Real*, const Real*, int, int, double, double, double, double, Real*);
void barnes_hut(Real*, Real*, const Real*, const Real*, const Real*, int, int, double, double, double, double, Real*,
                Real*, Real*, int*);
void nbody_on_gpu(Real*, Real*, const Real*, const Real*, const Real*, int, int, double, double, double, double, Real*,
                  Stream);
void barnes_hut_on_gpu(Real*, Real*, const Real*, const Real*, const Real*, int, int, double, double, double, double,
                       Real*, Real*, Real*, unsigned*, int*, int*, int*, Stream);
void barnes_hut_divided(Real*, Real*, const Real*, const Real*, const Real*, int, int, double, double, double, double,
                        Real*, Real*, Real*, unsigned*, int*, int*, int*, Stream);
void pagerank_pull(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*);
void pagerank_delta(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*, Real*, int*);
void pagerank_blocks(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*, Real*, int*,
                     std::uint16_t*);
void pagerank_by_vertex(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*, double*,
                        Stream);
void pagerank_by_warp(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*, double*,
                      Stream);
void pagerank_by_edge(Real*, const int*, const int*, const int*, const int*, int, int, double, double, Real*, Real*,
                      double*, Stream);
void count_by_formulas(Count*, const int*, const int*, int, int, int, int*, int*, int*);
void count_by_formulas_on_gpu(Count*, const int*, const int*, int, int, int, int*, int*, int*, int*, Count*, unsigned*,
                              Stream);

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t status = (call);                                                                \
    if (status != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

namespace {

Stream stream;
using Work = std::function<void()>;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
const double started = now();

// An array on both sides, the one of the host page-locked.
template <class T>
struct Both {
  T *host = nullptr, *device = nullptr;
  std::size_t size;
  explicit Both(std::size_t size) : size(size) {
    CHECK(cudaMallocHost(&host, size * sizeof(T) + 64));
    CHECK(cudaMalloc(&device, size * sizeof(T) + 64));
  }
  explicit Both(const std::vector<T>& values) : Both(values.size()) { std::copy(values.begin(), values.end(), host); }
  ~Both() {
    cudaFreeHost(host);
    cudaFree(device);
  }
  void to_device() const { CHECK(cudaMemcpyAsync(device, host, size * sizeof(T), cudaMemcpyHostToDevice, stream)); }
  void to_host() const { CHECK(cudaMemcpyAsync(host, device, size * sizeof(T), cudaMemcpyDeviceToHost, stream)); }
};

template <class T>
struct Scratch {
  T* device = nullptr;
  explicit Scratch(std::size_t size) { CHECK(cudaMalloc(&device, size * sizeof(T) + 64)); }
  ~Scratch() { cudaFree(device); }
};

// The median of calls for so many seconds, after one that does not count.
double timed(const Work& work, double seconds = 0.1) {
  std::vector<double> times;
  work();
  for (const double end = now() + seconds; times.empty() || (now() < end && times.size() < 40);) {
    const double begin = now();
    work();
    times.push_back(now() - begin);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Row {
  std::string input;
  std::function<double()> error;

  void print(const char* version, double seconds, double inside) const {
    std::printf("%-36s %-22s %12.1f us", input.c_str(), version, 1e6 * seconds);
    if (inside > 0) std::printf("  on the GPU %12.1f us", 1e6 * inside);
    std::printf("  error %.2e\n", error());
    std::fflush(stdout);
  }
  void cpu(const char* version, const Work& work) const { print(version, timed(work), 0); }
  void gpu(const char* version, const Work& in, const Work& work, const Work& out) const {
    const double seconds = timed([&] {
      in();
      work();
      out();
      CHECK(cudaGetLastError());
      CHECK(cudaStreamSynchronize(stream));
    });
    const double inside = timed([&] {
      work();
      CHECK(cudaStreamSynchronize(stream));
    });
    print(version, seconds, inside);
  }
};

double largest_difference(const Real* found, const std::vector<Real>& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

// ---- bodies ------------------------------------------------------------------------------------------------------

void nbody(int n) {
  constexpr int kSteps = 10;
  std::mt19937 random(n);
  std::normal_distribution<Real> normal;
  Both<Real> start(3 * n), speed(3 * n), mass(n), place(3 * n), pull(3 * n);
  double total = 0;
  for (int i = 0; i < 3 * n; ++i) start.host[i] = normal(random), speed.host[i] = normal(random);
  for (int i = 0; i < n; ++i) total += mass.host[i] = std::abs(1 + normal(random));
  const double step = 1e-4, soft = 0.1, gravity = 0.1 / (total * kSteps * step * kSteps * step);
  Scratch<Real> v(3 * n), sorted(4 * n), cells(3 * n + 256);
  Scratch<unsigned> places(2 * n);
  Scratch<int> order(2 * n), digits(256 * ((n + 2047) / 2048)), ends(12);
  std::vector<Real> direct;
  const Row row{"nbody " + std::to_string(n) + ", 10 steps", [&] {
                  if (direct.empty()) direct.assign(pull.host, pull.host + 3 * n);
                  return largest_difference(pull.host, direct);
                }};
  const auto in = [&] { start.to_device(), speed.to_device(), mass.to_device(); };
  const auto out = [&] { place.to_host(), pull.to_host(); };
  row.gpu("gpu.tiled", in, [&] {
    nbody_on_gpu(place.device, pull.device, start.device, speed.device, mass.device, n, kSteps, step, soft, gravity, 0,
                 v.device, stream);
  }, out);
  for (const double theta : {0.4, 0.5, 0.6})
    row.gpu(("gpu.barnes_hut " + std::to_string(theta).substr(0, 3)).c_str(), in, [&] {
      barnes_hut_on_gpu(place.device, pull.device, start.device, speed.device, mass.device, n, kSteps, step, soft,
                        gravity, theta, v.device, sorted.device, cells.device, places.device, order.device,
                        digits.device, ends.device, stream);
    }, out);
  row.gpu("gpu.barnes_hut_divided", in, [&] {
    barnes_hut_divided(place.device, pull.device, start.device, speed.device, mass.device, n, kSteps, step, soft, gravity,
                       0.5, v.device, sorted.device, cells.device, places.device, order.device, digits.device,
                       ends.device, stream);
  }, out);
  std::vector<Real> host_v(3 * n), host_sorted(4 * n), host_cells(3 * n + 256);
  std::vector<int> host_order(4 * n);
  row.cpu("cpu.barnes_hut 0.5", [&] {
    barnes_hut(place.host, pull.host, start.host, speed.host, mass.host, n, kSteps, step, soft, gravity, 0.5,
               host_v.data(), host_sorted.data(), host_cells.data(), host_order.data());
  });
  if (n <= 20'000)
    row.cpu("cpu.openmp", [&] {
      nbody_openmp(place.host, pull.host, start.host, speed.host, mass.host, n, kSteps, step, soft, gravity, 0,
                   host_v.data());
    });
}

// ---- products ----------------------------------------------------------------------------------------------------

void gemm(int M, int N, int K, bool relu) {
  Both<Real> A(static_cast<std::size_t>(M) * K), B(static_cast<std::size_t>(K) * N), C(static_cast<std::size_t>(M) * N);
  Scratch<Real> a_parts(2 * A.size), b_parts(2 * B.size), numbers(4);
  for (const auto* matrix : {&A, &B}) {
#pragma omp parallel
    {
      std::mt19937 random(static_cast<unsigned>(matrix->size));
      std::uniform_real_distribution<Real> uniform(-1, 1);
#pragma omp for
      for (std::size_t row = 0; row < matrix->size / K; ++row) {
        random.seed(static_cast<unsigned>(row));
        for (int k = 0; k < K; ++k) matrix->host[row * K + k] = uniform(random);
      }
    }
  }
  const Row row{"gemm " + std::to_string(M) + " x " + std::to_string(N) + " x " + std::to_string(K) + (relu ? " relu" : ""),
                [&] {
                  double difference = 0, largest = 0;
                  for (std::size_t i = 0; i < C.size; i += 1 + C.size / 100'000)
                    largest = std::max(largest, std::abs(static_cast<double>(C.host[i])));
#pragma omp parallel for reduction(max : difference)
                  for (int sample = 0; sample < 4000; ++sample) {
                    const std::size_t at = static_cast<std::size_t>(sample * 0.61803398875 * C.size) % C.size;
                    double sum = 0;
                    for (int k = 0; k < K; ++k)
                      sum += static_cast<double>(A.host[at / N * K + k]) * B.host[static_cast<std::size_t>(k) * N + at % N];
                    difference = std::max(difference, std::abs((relu && sum < 0 ? 0 : sum) - C.host[at]));
                  }
                  return difference / largest;
                }};
  const auto version = [&](const char* name, const Work& work) {
    std::memset(C.host, 0, C.size * sizeof(Real));
    row.gpu(name, [&] { A.to_device(), B.to_device(); }, work, [&] { C.to_host(); });
  };
  const auto grid = [&](int height, int width) { return dim3((N + width - 1) / width, (M + height - 1) / height); };
  Real *const c = C.device, *const a = A.device, *const b = B.device;
  if (1.0 * M * N * K < 1e11)
    version("gpu.naive", [&] { gemm_thread<<<grid(8, 32), dim3(32, 8), 0, stream>>>(c, a, b, M, N, K, relu); });
  version("gpu.tiled", [&] { gemm_tiled<<<grid(64, 64), dim3(16, 16), 0, stream>>>(c, a, b, M, N, K, relu); });
  version("gpu.registers", [&] { gemm_registers<<<grid(128, 128), dim3(16, 16), 0, stream>>>(c, a, b, M, N, K, relu); });
  version("gpu.cublas", [&] { gemm_cublas(c, a, b, M, N, K, relu, stream); });
  version("gpu.tensor", [&] { gemm_tensor(c, a, b, M, N, K, relu, stream); });
  version("gpu.half", [&] {
    gemm_half(c, a, b, M, N, K, relu, a_parts.device, b_parts.device, numbers.device, stream);
  });
  version("gpu.tensor_split",
          [&] { gemm_tensor_split(c, a, b, M, N, K, relu, a_parts.device, b_parts.device, stream); });
}

// ---- graphs ------------------------------------------------------------------------------------------------------

// Edges u << 32 | v of a Kronecker graph, sorted, none twice. `both`: each in both directions.
std::vector<Count> kronecker(int levels, double ratio, double skew, bool both) {
  const std::size_t edges = static_cast<std::size_t>(std::ldexp(ratio, levels));
  const unsigned a = 256 * skew, b = 256 * (skew + 0.19), c = 256 * (skew + 0.38);
  std::vector<Count> out(both ? 2 * edges : edges);
#pragma omp parallel
  {
    std::mt19937 random;
#pragma omp for
    for (std::size_t i = 0; i < edges; ++i) {
      if (i % 4096 == 0) random.seed(static_cast<unsigned>(i / 4096));
      Count u = 0, v = 0;
      while (u == v) {
        u = v = 0;
        for (int level = 0; level < levels; ++level) {
          const unsigned drawn = random() >> 24;
          u = 2 * u + (drawn >= b);
          v = 2 * v + ((drawn >= a && drawn < b) || drawn >= c);
        }
      }
      out[i] = u << 32 | v;
      if (both) out[edges + i] = v << 32 | u;
    }
  }
  __gnu_parallel::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

struct Rows { std::vector<int> begins, ends; };

Rows rows_of(int n, const std::vector<Count>& edges) {
  Rows rows{std::vector<int>(n + 1, 0), {}};
  for (const Count edge : edges) {
    ++rows.begins[(edge >> 32) + 1];
    rows.ends.push_back(static_cast<int>(edge & 0xffffffff));
  }
  for (int v = 0; v < n; ++v) rows.begins[v + 1] += rows.begins[v];
  return rows;
}

std::string named(const char* what, int levels, std::size_t edges, double skew) {
  return std::string(what) + " 2^" + std::to_string(levels) + ", m " + std::to_string(edges) + ", skew " +
         std::to_string(skew).substr(0, 4);
}

void pagerank(int levels, double ratio, double skew) {
  const int n = 1 << levels;
  auto edges = kronecker(levels, ratio, skew, false);
  const Rows outward = rows_of(n, edges);
  for (Count& edge : edges) edge = edge << 32 | edge >> 32;
  __gnu_parallel::sort(edges.begin(), edges.end());
  const Rows inward = rows_of(n, edges);
  const int m = static_cast<int>(edges.size());
  const Both<int> in_ptr(inward.begins), sources(inward.ends), out_ptr(outward.begins), targets(outward.ends);
  const Both<Real> rank(n);
  const Scratch<Real> given(2 * static_cast<std::size_t>(n)), sum(n);
  const Scratch<double> change(512);
  std::vector<Real> host_given(2 * static_cast<std::size_t>(n)), message(std::max(n, m)), pulled;
  std::vector<int> sender(std::max(n, m));
  std::vector<std::uint16_t> place(m);
  const Row row{named("pagerank", levels, edges.size(), skew), [&] {
                  if (pulled.empty()) pulled.assign(rank.host, rank.host + n);
                  return largest_difference(rank.host, pulled);
                }};
  const double d = 0.85, limit = 2e-7;
  row.cpu("cpu.pull", [&] {
    pagerank_pull(rank.host, in_ptr.host, sources.host, out_ptr.host, targets.host, n, m, d, limit, host_given.data());
  });
  row.cpu("cpu.blocks", [&] {
    pagerank_blocks(rank.host, in_ptr.host, sources.host, out_ptr.host, targets.host, n, m, d, limit, host_given.data(),
                    message.data(), sender.data(), place.data());
  });
  row.cpu("cpu.delta", [&] {
    pagerank_delta(rank.host, in_ptr.host, sources.host, out_ptr.host, targets.host, n, m, d, limit, host_given.data(),
                   message.data(), sender.data());
  });
  const auto in = [&] { in_ptr.to_device(), sources.to_device(), out_ptr.to_device(); };
  const auto out = [&] { rank.to_host(); };
  row.gpu("gpu.vertex", in, [&] {
    pagerank_by_vertex(rank.device, in_ptr.device, sources.device, out_ptr.device, targets.device, n, m, d, limit,
                       given.device, change.device, stream);
  }, out);
  row.gpu("gpu.warp", in, [&] {
    pagerank_by_warp(rank.device, in_ptr.device, sources.device, out_ptr.device, targets.device, n, m, d, limit,
                     given.device, change.device, stream);
  }, out);
  row.gpu("gpu.edge", in, [&] {
    pagerank_by_edge(rank.device, in_ptr.device, sources.device, out_ptr.device, targets.device, n, m, d, limit,
                     given.device, sum.device, change.device, stream);
  }, out);
}

void kmotif(int k, int levels, double ratio, double skew, bool cpu) {
  const int n = 1 << levels;
  const auto edges = kronecker(levels, ratio, skew, true);
  const Rows rows = rows_of(n, edges);
  const int m = static_cast<int>(edges.size());
  const Both<int> ptr(rows.begins), ends(rows.ends);
  const Both<Count> found(6);
  const Scratch<int> out_ptr(n + 1), links(m / 2), source(m / 2), triangles(m / 2);
  const Scratch<Count> sums(9);
  const Scratch<unsigned> table(static_cast<std::size_t>(128) * n);
  std::vector<Count> counts;
  const Row row{named(("kmotif " + std::to_string(k) + ",").c_str(), levels, edges.size(), skew), [&] {
                  if (counts.empty()) counts.assign(found.host, found.host + 6);
                  return static_cast<double>(!std::equal(counts.begin(), counts.end(), found.host));
                }};
  row.gpu("gpu.counting", [&] { ptr.to_device(), ends.to_device(); }, [&] {
    count_by_formulas_on_gpu(found.device, ptr.device, ends.device, k, n, m, out_ptr.device, links.device,
                             source.device, triangles.device, sums.device, table.device, stream);
  }, [&] { found.to_host(); });
  if (!cpu) return;
  std::vector<int> host_out_ptr(n + 1), host_links(m / 2), host_triangles(m / 2);
  row.cpu("cpu.counting", [&] {
    count_by_formulas(found.host, ptr.host, ends.host, k, n, m, host_out_ptr.data(), host_links.data(),
                      host_triangles.data());
  });
}

}  // namespace

int main(int count, char** words) {
  const double limit = count > 1 ? std::atof(words[1]) : 1e9;
  const std::string only = count > 2 ? words[2] : "";
  CHECK(cudaStreamCreate(&stream));
  const auto run = [&](const char* sample, const Work& work) {
    if ((only.empty() || only == sample) && now() - started < limit) work();
  };
  for (const int n : {300, 1000, 4000, 6000, 10'000, 14'000, 20'000, 28'000, 40'000, 80'000, 191'751})
    run("nbody", [&] { nbody(n); });
  for (const int n : {128, 512, 1024, 2048, 4096, 8192}) run("gemm", [&] { gemm(n, n, n, false); });
  for (const int n : {512, 4096}) run("gemm", [&] { gemm(n, n, n, true); });
  run("gemm", [&] { gemm(1001, 3003, 997, false), gemm(64, 20'000, 2000, false), gemm(9000, 17, 5000, false); });
  for (const double ratio : {4, 20}) run("pagerank", [&] { pagerank(17, ratio, 0.57); });
  run("pagerank", [&] { pagerank(17, 20, 0.3), pagerank(21, 8, 0.5); });
  run("kmotif", [&] { kmotif(4, 17, 8, 0.45, true), kmotif(3, 17, 16, 0.57, true); });
  for (const int k : {3, 4}) run("kmotif", [&] { kmotif(k, 20, 8, 0.45, true); });
  run("kmotif", [&] { kmotif(3, 22, 12, 0.45, true); });
  run("kmotif", [&] { kmotif(3, 22, 16, 0.57, false); });
  run("kmotif", [&] { kmotif(4, 22, 8, 0.45, false); });
  run("kmotif", [&] { kmotif(4, 22, 16, 0.57, false); });
}
