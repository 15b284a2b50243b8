// A library on arrays of the application, against a loop over all ranks: run(n) and n times run(1), a graph of the application,
// other arrays, and, with APP_CUDA on GPUs, what create refuses. With APP_NCCL on a communicator of the application.
#ifndef APP_CUDA
#include "dagc/target.hpp"  // streams of the host target
#endif
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "own.hpp"
#include "ring.hpp"
#ifdef APP_NCCL
#include <nccl.h>
#endif

namespace {

using Numbers = std::vector<std::uint32_t>;
constexpr std::size_t n = 500;
int rank = 0, ranks = 1;
bool right = true;

void expect(bool good, const char* what) {
  if (!good) std::fprintf(stderr, "rank %d: %s\n", rank, what);
  right = right && good;
}

Numbers start(int of) {
  Numbers x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<std::uint32_t>(of) * 1000003u + static_cast<std::uint32_t>(i);
  return x;
}

// x and last of this rank after so many iterations.
std::pair<Numbers, Numbers> expected(int runs) {
  std::vector<Numbers> at, next;
  for (int of = 0; of < ranks; ++of) at.push_back(start(of));
  Numbers last(n);
  for (next = at; runs > 0; --runs, at = next)
    for (int of = 0; of < ranks; ++of)
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t received = 3 * at[static_cast<std::size_t>((of + ranks - 1) % ranks)][i] + 1;
        next[static_cast<std::size_t>(of)][i] = 5 * at[static_cast<std::size_t>(of)][i] + 2 + received;
        if (of == rank) last[i] = 7 * received;
      }
  return {at[static_cast<std::size_t>(rank)], last};
}

// The arrays of an instance.
struct Data {
  Own<std::uint32_t> x{start(rank)}, last{Numbers(n)};
  int target = (rank + 1) % ranks, source = (rank + ranks - 1) % ranks, count = static_cast<int>(n);

  ring::Arrays arrays() { return {{x.data(), n}, {last.data(), n}, {&target, 1}, {&count, 1}, {&source, 1}, {&count, 1}}; }
  void check(int runs, const char* what) {
    const auto [want_x, want_last] = expected(runs);
    expect(x.values() == want_x && last.values() == want_last, what);
  }
};

ring::Options options() {
  ring::Options out{};
#ifdef APP_NCCL
  static ncclComm_t nccl = [] {
    ncclUniqueId id;
    if (rank == 0) ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ncclComm_t made = nullptr;
    ncclCommInitRank(&made, ranks, id, rank);
    return made;
  }();
  out.nccl_comm = nccl;
#endif
  return out;
}

void repeated_runs(int runs) {
  Data whole, single;
  const ring::Options given = options();
  const double before = MPI_Wtime();
  ring::Instance one(MPI_COMM_WORLD, {n}, whole.arrays(), given), other(MPI_COMM_WORLD, {n}, single.arrays(), given);
  if (rank == 0) std::printf("created two in %.2f ms\n", 1e3 * (MPI_Wtime() - before));
  one.run(runs);
  for (int k = 0; k < runs; ++k) other.run();
  whole.check(runs, "run(n) is wrong");
  single.check(runs, "run(1) is wrong");
}

// The same addresses with other memory, in the middle.
void other_arrays() {
  auto data = std::make_unique<Data>();
  ring::Instance instance(MPI_COMM_WORLD, {n}, data->arrays(), options());
  instance.run(40);
  data->check(40, "before rebind");
  data.reset();
  data = std::make_unique<Data>();
  instance.rebind({n}, data->arrays());
  instance.run(40);
  data->check(40, "after rebind");
}

// The code of an op of the CPU throws, in its worker thread.
void throws() {
  Data data;
  Numbers first = start(rank);
  first[0] = 0xaaaaaaaau;  // of which 0xffffffff is received
  Own<std::uint32_t> x{first};
  ring::Arrays arrays = data.arrays();
  arrays.x.data = x.data();
  ring::Instance instance(MPI_COMM_WORLD, {n}, arrays, options());
  try {
    instance.run();
    expect(false, "an exception of an op is lost");
  } catch (const ring::Error& error) {
    expect(error.code == 5 && std::strstr(error.what(), "op `last` (kernel `affine`): the largest number") != nullptr, error.what());
  }
  instance.run();
}

#if RING_HAS_ENQUEUE
// Three iterations in a CUDA graph of the application, launched four times, between other work on its stream.
void own_graph() {
  Data data;
  ring::Instance instance(MPI_COMM_WORLD, {n}, data.arrays(), options());
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  for (int k = 0; k < 3; ++k) instance.enqueue(stream);
  expect(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "capture");
  expect(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess, "instantiate");
  instance.enqueue(stream);
  for (int k = 0; k < 4; ++k) cudaGraphLaunch(executable, stream);
  cudaMemsetAsync(data.last.data(), 0, n * sizeof(std::uint32_t), stream);
  instance.enqueue(stream);
  cudaStreamSynchronize(stream);
  data.check(14, "graph of the application");
  instance.run(2);
  data.check(16, "run after the graph");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}
#endif

#ifdef APP_CUDA
template <class Change>
void refused(const char* text, Change change, int code = 2) {
  Data data;
  ring::Arrays arrays = data.arrays();
  ring::Options given = options();
  if (rank == ranks - 1) change(arrays, given);
  try {
    ring::Instance instance(MPI_COMM_WORLD, {n}, arrays, given);
    expect(false, text);
  } catch (const ring::Error& error) {
    const bool good = error.code == code && std::strstr(error.what(), text) != nullptr;
    if (!good) std::fprintf(stderr, "rank %d: %d %s\n", rank, error.code, error.what());
    expect(good, text);
  }
}

void refusals() {
  Numbers host(n);
  std::uint32_t *locked = nullptr, *shorter = nullptr;
  cuda(cudaMallocHost(reinterpret_cast<void**>(&locked), n * sizeof *locked));
  cuda(cudaMalloc(reinterpret_cast<void**>(&shorter), 64));
  using Given = ring::Options;
  refused("array `x` is in host memory, and must be on the GPU", [&](ring::Arrays& a, Given&) { a.x.data = host.data(); });
  refused("array `last` is in host memory, and must be on the GPU", [&](ring::Arrays& a, Given&) { a.last.data = locked; });
  refused("array `target` is on the GPU, and must be in host memory", [&](ring::Arrays& a, Given&) { a.target.data = reinterpret_cast<int*>(shorter); });
  refused("array `x` needs 2000 bytes, and its allocation ends after", [&](ring::Arrays& a, Given&) { a.x.data = shorter + (a.x.size - n); });
  refused("array `x` is not aligned to 4 bytes", [&](ring::Arrays& a, Given&) {
    a.x.data = reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(a.x.data) + 1);
  });
  refused("` overlaps array `", [&](ring::Arrays& a, Given&) { a.last.data = a.x.data; });
  int gpus = 1, here = 0;
  cuda(cudaGetDeviceCount(&gpus));
  cuda(cudaGetDevice(&here));
  if (gpus > 1) {
    std::uint32_t* far = nullptr;
    cudaStream_t stream = nullptr;
    cuda(cudaSetDevice((here + 1) % gpus));
    cuda(cudaMalloc(reinterpret_cast<void**>(&far), n * sizeof *far));
    cuda(cudaStreamCreate(&stream));
    cuda(cudaSetDevice(here));
    refused("array `x` is on GPU ", [&](ring::Arrays& a, Given&) { a.x.data = far; });
    refused("the stream is not one of the current GPU", [&](ring::Arrays&, Given& o) { o.stream = stream; });
    // An instance stays on its GPU.
    Data data;
    ring::Instance instance(MPI_COMM_WORLD, {n}, data.arrays(), options());
    cuda(cudaSetDevice((here + 1) % gpus));
    instance.run(40);
    int now = -1;
    cuda(cudaGetDevice(&now));
    expect(now == (here + 1) % gpus, "the current GPU changed");
    cuda(cudaSetDevice(here));
    data.check(40, "while another GPU is current");
  }
#ifdef APP_NCCL
  if (ranks > 1) refused("nccl_comm is given, but not on every rank", [&](ring::Arrays&, Given& o) { o.nccl_comm = nullptr; });
#endif
}
#endif

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  take_gpu(rank);
  try {
    for (const int runs : {1, 2, 37, 70}) repeated_runs(runs);
    other_arrays();
    throws();
#if RING_HAS_ENQUEUE
    own_graph();
#endif
#ifdef APP_CUDA
    refusals();
#endif
  } catch (const std::exception& error) {
    expect(false, error.what());
  }
  std::printf("rank %d: %s\n", rank, right ? "right" : "wrong");
  MPI_Finalize();
  return right ? 0 : 1;
}
