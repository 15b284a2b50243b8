// The runtime API: what succeeds, what is refused and how, and what events mean.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dagc/host_cublas.hpp"
#include "dagc/host_curand_host.hpp"
#include "dagc/redundant_edges.hpp"
#include "dagc/target.hpp"

namespace {

__global__ void nothing() {}
__global__ void store(long long* to, long long value, const char* text, double real) {
  to[0] = value;
  to[1] = text == nullptr;
  to[2] = static_cast<long long>(real);
}
template <int Plus, class T>
__global__ void store_of(T* to, T value) {
  *to = value + Plus;
}
__global__ void store_of(long long* to) { *to = 9; }
__global__ void count(int* calls) { atomicAdd(calls, 1); }
__global__ void where(unsigned* out) {
  const unsigned i =
      ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y * blockDim.z +
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  ++out[i];
}

// A stream whose work waits until `open()`.
class Gate {
 public:
  Gate() { GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Gate() {
    open();
    GOOD(cudaStreamSynchronize(stream));
    GOOD(cudaStreamDestroy(stream));
  }
  void close() {
    closed_ = true;
    GOOD(cudaLaunchHostFunc(stream, wait, &closed_));
  }
  void open() { closed_ = false; }
  cudaStream_t stream = nullptr;

 private:
  static void wait(void* closed) {
    while (*static_cast<std::atomic<bool>*>(closed)) usleep(50);
  }
  std::atomic<bool> closed_{false};
};

cudaEvent_t event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t e;
  GOOD(cudaEventCreateWithFlags(&e, flags));
  return e;
}

void events_never_recorded_are_complete() {
  Gate gate;
  const cudaEvent_t e = event();
  EXPECT(cudaEventQuery(e) == cudaSuccess);
  GOOD(cudaEventSynchronize(e));
  GOOD(cudaStreamWaitEvent(gate.stream, e, 0));
  GOOD(cudaStreamSynchronize(gate.stream));
}

void events_mean_their_latest_record() {
  Gate a, b;
  const cudaEvent_t e = event();
  a.close();
  GOOD(cudaEventRecord(e, a.stream));
  EXPECT(cudaEventQuery(e) == cudaErrorNotReady);
  EXPECT(cudaGetLastError() == cudaSuccess);  // not ready is an answer, not an error
  GOOD(cudaEventRecord(e, b.stream));         // now it means b, whose work is done at once
  GOOD(cudaEventSynchronize(e));
  EXPECT(cudaStreamQuery(a.stream) == cudaErrorNotReady);
}

void waits_mean_the_record_before_them() {
  Gate a, b;
  const cudaEvent_t e = event();
  int* calls;
  GOOD(cudaMalloc(&calls, sizeof *calls));
  *calls = 0;
  a.close();
  GOOD(cudaEventRecord(e, a.stream));
  GOOD(cudaStreamWaitEvent(b.stream, e, 0));
  dagc::launch(count, 1, 1, 0, b.stream, calls);
  Gate c;
  GOOD(cudaEventRecord(e, c.stream));  // changes nothing for b
  GOOD(cudaEventSynchronize(e));
  usleep(2000);
  EXPECT(cudaStreamQuery(b.stream) == cudaErrorNotReady);
  EXPECT(__atomic_load_n(calls, __ATOMIC_RELAXED) == 0);
  a.open();
  GOOD(cudaStreamSynchronize(b.stream));
  EXPECT(*calls == 1);
  GOOD(cudaFree(calls));
}

void later_records_do_not_delay_earlier_waits() {
  Gate a, b;
  const cudaEvent_t e = event();
  GOOD(cudaEventRecord(e, a.stream));
  GOOD(cudaStreamWaitEvent(b.stream, e, 0));
  a.close();
  GOOD(cudaEventRecord(e, a.stream));
  GOOD(cudaStreamSynchronize(b.stream));  // does not wait for the second
  EXPECT(cudaEventQuery(e) == cudaErrorNotReady);
}

void many_records_in_flight() {
  Gate a;
  a.close();
  const cudaEvent_t e = event();
  std::vector<cudaStream_t> streams(20);
  for (cudaStream_t& s : streams) {
    GOOD(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    GOOD(cudaEventRecord(e, a.stream));
    GOOD(cudaStreamWaitEvent(s, e, 0));
  }
  for (const cudaStream_t s : streams) EXPECT(cudaStreamQuery(s) == cudaErrorNotReady);
  a.open();
  for (const cudaStream_t s : streams) {
    GOOD(cudaStreamSynchronize(s));
    GOOD(cudaStreamDestroy(s));
  }
}

void event_times() {
  Gate a;
  const cudaEvent_t first = event(cudaEventDefault), last = event(cudaEventDefault), plain = event();
  float ms = -1;
  EXPECT(cudaEventElapsedTime(&ms, first, last) == cudaErrorInvalidResourceHandle);  // not recorded
  GOOD(cudaEventRecord(first, a.stream));
  GOOD(cudaLaunchHostFunc(
      a.stream, [](void*) { usleep(3000); }, nullptr));
  a.close();
  GOOD(cudaEventRecord(last, a.stream));
  GOOD(cudaEventRecord(plain, a.stream));
  EXPECT(cudaEventElapsedTime(&ms, first, last) == cudaErrorNotReady);
  a.open();
  GOOD(cudaEventSynchronize(last));
  GOOD(cudaEventElapsedTime(&ms, first, last));
  EXPECT(ms >= 3);
  EXPECT(cudaEventElapsedTime(&ms, first, plain) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

void launches_that_cuda_refuses() {
  struct {
    dim3 grid, block;
    std::size_t shared;
  } const bad[] = {{0, 1, 0},
                   {dim3(1, 0), 1, 0},
                   {1, 0, 0},
                   {1, 1025, 0},
                   {1, dim3(32, 33), 0},
                   {1, dim3(1, 1, 65), 0},
                   {dim3(1, 65536), 1, 0},
                   {dim3(1, 1, 65536), 1, 0},
                   {0x80000000u, 1, 0},
                   {1, 1, 227 * 1024 + 1}};
  for (const auto& b : bad) {
    dagc::launch(nothing, b.grid, b.block, b.shared, nullptr);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaSuccess);
  }
  dagc::launch(nothing, 1, dim3(1024, 1, 1), 227 * 1024, nullptr);
  GOOD(cudaGetLastError());
  EXPECT(std::strcmp(cudaGetErrorString(cudaErrorInvalidConfiguration), "invalid configuration argument") == 0);
  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration") == 0);
}

void arguments_are_converted_as_in_a_call() {
  long long* to;
  GOOD(cudaMalloc(&to, 3 * sizeof *to));
  const short value = -3;
  dagc::launch(store, 1u, dim3(1), 0, nullptr, to, value, nullptr, 7);
  GOOD(cudaDeviceSynchronize());
  EXPECT(to[0] == -3 && to[1] == 1 && to[2] == 7);
  dagc::launch(store, std::int64_t{1}, 1, 0, nullptr, to, 1, 0, 2.9f);
  GOOD(cudaDeviceSynchronize());
  EXPECT(to[0] == 1 && to[1] == 1 && to[2] == 2);
  // Named in a launch, a template is what the call makes of it, and so is an overload.
  dagc::launch(DAGC_KERNEL(store), 1, 1, 0, nullptr, to + 0, 5, NULL, 7);
  GOOD(cudaDeviceSynchronize());
  EXPECT(to[0] == 5 && to[1] == 1);
  dagc::launch(DAGC_KERNEL(store_of<2>), 1, 1, 0, nullptr, to, 4LL);
  dagc::launch(DAGC_KERNEL(store_of<3, long long>), 1, 1, 0, nullptr, to + 1, 4);
  dagc::launch(DAGC_KERNEL(store_of), 1, 1, 0, nullptr, to + 2);
  GOOD(cudaDeviceSynchronize());
  EXPECT(to[0] == 6 && to[1] == 7 && to[2] == 9);
  dagc::launch(DAGC_KERNEL(store_of<2>), 0, 1, 0, nullptr, to, 4LL);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  GOOD(cudaFree(to));
}

void every_thread_runs_once() {
  const dim3 grid(3, 2, 4), block(5, 3, 2);
  unsigned* out;
  const int n = 3 * 2 * 4 * 5 * 3 * 2;
  GOOD(cudaMalloc(&out, n * sizeof *out));
  GOOD(cudaMemset(out, 0, n * sizeof *out));
  dagc::launch(where, grid, block, 0, nullptr, out);
  GOOD(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) EXPECT(out[i] == 1);
  GOOD(cudaFree(out));
}

void refusals() {
  int device = -1, n = 0;
  GOOD(cudaGetDeviceCount(&n));
  EXPECT(n == 1);
  EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  GOOD(cudaSetDevice(0));
  GOOD(cudaGetDevice(&device));
  EXPECT(device == 0);
  cudaDeviceProp properties;
  GOOD(cudaGetDeviceProperties(&properties, 0));
  EXPECT(std::strcmp(properties.name, "host") == 0 && properties.warpSize == 32 &&
         properties.maxThreadsPerBlock == 1024);

  char* memory = reinterpret_cast<char*>(1);
  EXPECT(cudaMalloc(&memory, SIZE_MAX) == cudaErrorMemoryAllocation && memory == nullptr);
#if !defined(__SANITIZE_ADDRESS__)  // which speaks about it
  EXPECT(cudaMalloc(&memory, std::size_t{1} << 60) == cudaErrorMemoryAllocation && memory == nullptr);
#endif
  GOOD(cudaMalloc(&memory, 0));
  EXPECT(memory == nullptr);
  GOOD(cudaFree(nullptr));
  GOOD(cudaMallocHost(&memory, 10));
  EXPECT(cudaMemcpy(memory, nullptr, 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(memory, memory, 1, static_cast<cudaMemcpyKind>(9)) == cudaErrorInvalidMemcpyDirection);
  GOOD(cudaMemcpy(memory, nullptr, 0, cudaMemcpyHostToDevice));
  GOOD(cudaFreeHost(memory));
  EXPECT(cudaFree(memory) == cudaErrorInvalidValue);  // twice
  cudaGetLastError();

  cudaStream_t stream;
  GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  GOOD(cudaStreamDestroy(stream));
  const cudaEvent_t e = event();
  EXPECT(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventRecord(e, stream) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamWaitEvent(stream, e, 0) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  dagc::launch(nothing, 1, 1, 0, stream);
  EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  GOOD(cudaEventDestroy(e));
  EXPECT(cudaEventRecord(e, nullptr) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

void destroyed_streams_finish_their_work() {
  int* calls;
  GOOD(cudaMalloc(&calls, sizeof *calls));
  *calls = 0;
  for (int i = 0; i < 200; ++i) {
    cudaStream_t stream;
    GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    dagc::launch(count, 2, 3, 0, stream, calls);
    GOOD(cudaStreamDestroy(stream));
  }
  GOOD(cudaDeviceSynchronize());
  EXPECT(*calls == 1200);
  GOOD(cudaFree(calls));
}

void copies_and_fills() {
  std::vector<int> from(1000), to(1000);
  for (int i = 0; i < 1000; ++i) from[i] = i;
  int *x, *y;
  GOOD(cudaMalloc(&x, 4000));
  GOOD(cudaMalloc(&y, 4000));
  EXPECT(reinterpret_cast<std::uintptr_t>(x) % 256 == 0);
  GOOD(cudaMemcpy(x, from.data(), 4000, cudaMemcpyHostToDevice));
  GOOD(cudaMemcpy(y, x, 4000, cudaMemcpyDeviceToDevice));
  GOOD(cudaMemcpy(to.data(), y, 4000, cudaMemcpyDeviceToHost));
  EXPECT(to == from);
  GOOD(cudaMemset(x, 0xff, 4000));
  GOOD(cudaMemcpy2DAsync(x, 40, y, 80, 8, 10, cudaMemcpyDeviceToDevice, nullptr));
  GOOD(cudaDeviceSynchronize());
  EXPECT(x[0] == 0 && x[1] == 1 && x[2] == -1 && x[10] == 20 && x[91] == 181 && x[92] == -1);
  GOOD(cudaFree(x));
  GOOD(cudaFree(y));
}

void many_threads_issue() {  // from several threads of the CPU, as CUDA allows
  int* calls;
  GOOD(cudaMalloc(&calls, sizeof *calls));
  *calls = 0;
  cudaStream_t shared;
  GOOD(cudaStreamCreateWithFlags(&shared, cudaStreamNonBlocking));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([=] {
      cudaStream_t own;
      GOOD(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
      const cudaEvent_t e = event();
      for (int i = 0; i < 200; ++i) {
        dagc::launch(count, 1, 4, 0, own, calls);
        GOOD(cudaEventRecord(e, own));
        GOOD(cudaStreamWaitEvent(shared, e, 0));
        dagc::launch(count, 1, 1, 0, shared, calls);
        if (i % 7 == 0) GOOD(cudaStreamSynchronize(own));
        if (i % 11 == 0) GOOD(cudaEventSynchronize(e));
      }
      GOOD(cudaStreamSynchronize(own));
      GOOD(cudaEventDestroy(e));
      GOOD(cudaStreamDestroy(own));
    });
  for (std::thread& t : threads) t.join();
  GOOD(cudaDeviceSynchronize());
  EXPECT(*calls == 4 * 200 * 5);
  GOOD(cudaFree(calls));
}

void sleeping_and_waking() {  // nothing is lost when streams and waiters fall asleep between operations
  Gate a, b;
  const cudaEvent_t e = event(), f = event();
  int* calls;
  GOOD(cudaMalloc(&calls, sizeof *calls));
  *calls = 0;
  for (int i = 0; i < 3000; ++i) {
    dagc::launch(count, 1, 1, 0, a.stream, calls);
    GOOD(cudaEventRecord(e, a.stream));
    GOOD(cudaStreamWaitEvent(b.stream, e, 0));
    dagc::launch(count, 1, 1, 0, b.stream, calls);
    GOOD(cudaEventRecord(f, b.stream));
    GOOD(cudaEventSynchronize(i % 3 == 0 ? f : e));
    if (i % 100 == 0) usleep(200);
  }
  GOOD(cudaDeviceSynchronize());
  EXPECT(*calls == 6000);
  GOOD(cudaFree(calls));
}

void idle_streams_use_no_processor() {
  Gate a, b;
  a.close();
  const cudaEvent_t e = event();
  GOOD(cudaEventRecord(e, a.stream));
  GOOD(cudaStreamWaitEvent(b.stream, e, 0));  // b waits in an event, a in a host function, others have nothing to do
  usleep(20000);
  const std::clock_t before = std::clock();
  const auto start = std::chrono::steady_clock::now();
  usleep(200000);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < 0.5 * wall);
  a.open();
}

// What `work` issues on `origin`, and on streams that fork from it, as a graph that can be launched.
template <class Work>
cudaGraphExec_t captured(cudaStream_t origin, Work work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  GOOD(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed));
  work();
  GOOD(cudaStreamEndCapture(origin, &graph));
  GOOD(cudaGraphInstantiate(&executable, graph, 0));
  GOOD(cudaGraphDestroy(graph));
  return executable;
}

void graphs_run_what_was_captured() {  // in two streams, at each launch, and not before
  Gate a, b;
  const cudaEvent_t fork = event(), join = event();
  int* calls;
  GOOD(cudaMalloc(&calls, sizeof *calls));
  *calls = 0;
  const cudaGraphExec_t graph = captured(a.stream, [&] {
    dagc::launch(count, 1, 1, 0, a.stream, calls);
    GOOD(cudaEventRecord(fork, a.stream));
    GOOD(cudaStreamWaitEvent(b.stream, fork, 0));
    dagc::launch(count, 1, 10, 0, b.stream, calls);
    GOOD(cudaEventRecord(join, b.stream));
    GOOD(cudaStreamWaitEvent(a.stream, join, 0));
    dagc::launch(count, 1, 100, 0, a.stream, calls);
  });
  GOOD(cudaDeviceSynchronize());
  EXPECT(*calls == 0);
  b.close();  // what `b` does later is nothing to the graph, wherever that is launched
  for (int i = 1; i <= 3; ++i) {
    GOOD(cudaGraphLaunch(graph, i == 2 ? nullptr : a.stream));
    GOOD(cudaStreamSynchronize(i == 2 ? nullptr : a.stream));
    EXPECT(*calls == 111 * i);
  }
  GOOD(cudaGraphLaunch(graph, a.stream));
  GOOD(cudaGraphExecDestroy(graph));  // the launch is under way
  GOOD(cudaStreamSynchronize(a.stream));
  EXPECT(*calls == 444);
  b.open();
  GOOD(cudaFree(calls));
}

void graphs_run_side_by_side_what_nothing_orders() {
  Gate a, b;
  const cudaEvent_t fork = event(), join = event();
  std::atomic<bool> flag{false};
  const auto wait = [](void* on) {
    while (!*static_cast<std::atomic<bool>*>(on)) usleep(50);
  };
  const auto set = [](void* on) { *static_cast<std::atomic<bool>*>(on) = true; };
  const cudaGraphExec_t graph = captured(a.stream, [&] {
    GOOD(cudaEventRecord(fork, a.stream));
    GOOD(cudaStreamWaitEvent(b.stream, fork, 0));
    GOOD(cudaLaunchHostFunc(a.stream, wait, &flag));  // captured first, ends last
    GOOD(cudaLaunchHostFunc(b.stream, set, &flag));
    GOOD(cudaEventRecord(join, b.stream));
    GOOD(cudaStreamWaitEvent(a.stream, join, 0));
  });
  GOOD(cudaGraphLaunch(graph, a.stream));
  GOOD(cudaStreamSynchronize(a.stream));
  EXPECT(flag);
  GOOD(cudaGraphExecDestroy(graph));
}

void captures_that_cuda_refuses() {
  Gate a, b;
  const cudaEvent_t e = event(), before = event();
  GOOD(cudaEventRecord(before, b.stream));
  const auto status = [&](auto work) {
    cudaGraph_t graph = nullptr;
    GOOD(cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeRelaxed));
    work();
    const cudaError_t end = cudaStreamEndCapture(a.stream, &graph);
    EXPECT((end == cudaSuccess) == (graph != nullptr));
    GOOD(cudaGraphDestroy(graph));
    return end;
  };
  EXPECT(status([] {}) == cudaSuccess);
  EXPECT(status([&] { EXPECT(cudaStreamSynchronize(a.stream) == cudaErrorStreamCaptureUnsupported); }) ==
         cudaErrorStreamCaptureInvalidated);
  EXPECT(status([] { EXPECT(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported); }) ==
         cudaErrorStreamCaptureInvalidated);
  EXPECT(status([&] {
           GOOD(cudaEventRecord(e, a.stream));
           EXPECT(cudaEventSynchronize(e) == cudaErrorCapturedEvent);
         }) == cudaErrorStreamCaptureInvalidated);
  EXPECT(status([&] { EXPECT(cudaStreamWaitEvent(a.stream, before, 0) == cudaErrorStreamCaptureIsolation); }) ==
         cudaErrorStreamCaptureInvalidated);
  EXPECT(status([&] {  // b forks, and does not join
           GOOD(cudaEventRecord(e, a.stream));
           GOOD(cudaStreamWaitEvent(b.stream, e, 0));
           dagc::launch(nothing, 1, 1, 0, b.stream);
         }) == cudaErrorStreamCaptureUnjoined);
  cudaGraph_t graph = nullptr;
  EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(a.stream, &graph) == cudaErrorInvalidValue);
  GOOD(cudaStreamSynchronize(a.stream));
}

// What is left of a random graph orders the same pairs of nodes, and without any further edge it does not.
void redundant_edges_of_graphs() {
  std::uint64_t random = 1;
  const auto draw = [&](std::uint64_t n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % n;
  };
  for (std::size_t n : {1, 2, 5, 9, 70})
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<dagc::GraphEdge> edges;
      for (std::size_t to = 1; to < n; ++to)
        for (std::size_t from = 0; from < to; ++from)
          if (draw(4) == 0) edges.emplace_back(n - 1 - from, n - 1 - to);  // numbers are in no order of the graph
      const auto reach = [&](const std::vector<dagc::GraphEdge>& some) {
        std::vector<std::vector<char>> out(n, std::vector<char>(n));
        for (const auto& e : some) out[e.first][e.second] = 1;
        for (std::size_t k = 0; k < n; ++k)
          for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j) out[i][j] = static_cast<char>(out[i][j] | (out[i][k] & out[k][j]));
        return out;
      };
      std::vector<dagc::GraphEdge> left = edges;
      const std::vector<std::size_t> found = dagc::redundant_edges(n, edges);
      for (std::size_t k = found.size(); k > 0; --k) left.erase(left.begin() + static_cast<std::ptrdiff_t>(found[k - 1]));
      EXPECT(reach(left) == reach(edges));
      for (std::size_t i = 0; n < 10 && i < left.size(); ++i) {
        std::vector<dagc::GraphEdge> fewer = left;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT(reach(fewer) != reach(edges));
      }
    }
}

void vectors_and_products() {
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  Gate gate;  // closed: what is issued runs later, with the scalars of the call
  cublasSetStream(handle, gate.stream);
  gate.close();
  double *x, *out, two = 2, zero = 0, sum = 0;
  GOOD(cudaMalloc(&x, 12 * sizeof(double)));
  GOOD(cudaMalloc(&out, 12 * sizeof(double)));
  for (int i = 0; i < 12; ++i) x[i] = i;
  cublasDscal(handle, 6, &two, x, 2);  // 0 1 4 3 8 5 12 7 16 9 20 11
  two = 3;
  cublasDaxpy(handle, 3, &two, x, -1, x + 6, 2);  // 4 1 0, three times: 24 7 19 9 20 11
  gate.open();
  EXPECT(cublasDdot(handle, 3, x, 2, x + 3, 3, &sum) == CUBLAS_STATUS_SUCCESS && sum == 4 * 24 + 8 * 9);
  EXPECT(cublasDnrm2(handle, 2, x + 3, 1, &sum) == CUBLAS_STATUS_SUCCESS && sum == std::sqrt(73.0));
  const double large[] = {3e200, 4e200}, small[] = {3e-200, 4e-200};
  EXPECT(cublasDnrm2(handle, 2, large, 1, &sum) == CUBLAS_STATUS_SUCCESS && std::abs(sum / 5e200 - 1) < 1e-15);
  EXPECT(cublasDnrm2(handle, 2, small, 1, &sum) == CUBLAS_STATUS_SUCCESS && std::abs(sum / 5e-200 - 1) < 1e-15);
  // Columns of x: (0 1 4), (3 8 5); their product with the transposed: 9 24 15, 24 65 44, 15 44 41.
  two = 1;
  cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 3, 3, 2, &two, x, 3, x, 3, &zero, out, 3);
  cublasDgemv(handle, CUBLAS_OP_T, 3, 2, &two, x, 3, x + 3, 1, &zero, out + 9, 1);
  GOOD(cudaStreamSynchronize(gate.stream));
  const double expected[] = {9, 24, 15, 24, 65, 44, 15, 44, 41, 28, 98};
  for (int i = 0; i < 11; ++i) EXPECT(out[i] == expected[i]);
  double* one;
  GOOD(cudaMalloc(&one, sizeof(double)));
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
  cublasDasum(handle, 3, out, 1, one);
  cublasDscal(handle, 1, one, out, 1);  // by what was computed on the stream
  cublasDswap(handle, 2, out + 1, 1, out + 5, -1);
  GOOD(cudaStreamSynchronize(gate.stream));
  EXPECT(*one == 48 && out[0] == 9 * 48 && out[1] == 15 && out[2] == 44 && out[5] == 15 && out[6] == 24);
  // A symmetric matrix whose upper part is 1 2, 3 there, by (1, 10); and its sum with (1, 10) (1, 10).
  const double square[] = {1, -1, 2, 3, 1, 10};
  std::copy(square, square + 6, x);
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
  cublasDsymv(handle, CUBLAS_FILL_MODE_UPPER, 2, &two, x, 2, x + 4, 1, &zero, out, 1);
  cublasDger(handle, 2, 2, &two, x + 4, 1, x + 4, 1, x, 2);
  GOOD(cudaStreamSynchronize(gate.stream));
  EXPECT(out[0] == 21 && out[1] == 32 && x[0] == 2 && x[1] == 9 && x[2] == 12 && x[3] == 103);
  // The transposed of (1 -1, 2 3) less twice (1 10, 0 0), and its columns times 1 and 10; the largest number of x.
  const double columns[] = {1, -1, 2, 3, 1, 10, 0, 0}, less = -2;
  int most = 0;
  std::copy(columns, columns + 8, x);
  cublasDgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, &two, x, 2, &less, x + 4, 2, out, 2);
  cublasDdgmm(handle, CUBLAS_SIDE_RIGHT, 2, 2, out, 2, x + 4, 1, out + 4, 2);
  EXPECT(cublasIdamax(handle, 8, x, 1, &most) == CUBLAS_STATUS_SUCCESS && most == 6);
  EXPECT(out[0] == -1 && out[1] == -18 && out[2] == -1 && out[3] == 3);
  EXPECT(out[4] == -1 && out[5] == -18 && out[6] == -10 && out[7] == 30);
  cublasDestroy(handle);
}

void random_numbers() {
  constexpr int n = 20000;
  curandGenerator_t generator;
  EXPECT(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_SUCCESS);
  curandSetPseudoRandomGeneratorSeed(generator, 7);
  float* uniform;
  double* normal;
  GOOD(cudaMalloc(&uniform, n * sizeof(float)));
  GOOD(cudaMalloc(&normal, n * sizeof(double)));
  curandGenerateUniform(generator, uniform, n);
  curandGenerateNormalDouble(generator, normal, n, 1, 2);
  GOOD(cudaDeviceSynchronize());
  double mean[2] = {}, square = 0;
  for (int i = 0; i < n; ++i) {
    EXPECT(uniform[i] > 0 && uniform[i] <= 1);
    mean[0] += uniform[i] / n;
    mean[1] += normal[i] / n;
    square += (normal[i] - 1) * (normal[i] - 1) / n;
  }
  EXPECT(std::abs(mean[0] - 0.5) < 0.02 && std::abs(mean[1] - 1) < 0.1 && std::abs(square - 4) < 0.3);
  curandDestroyGenerator(generator);
}

constexpr Case kCases[] = {
#define CASE(name) \
  { #name, name }
    CASE(redundant_edges_of_graphs),
    CASE(events_never_recorded_are_complete),
    CASE(events_mean_their_latest_record),
    CASE(waits_mean_the_record_before_them),
    CASE(later_records_do_not_delay_earlier_waits),
    CASE(many_records_in_flight),
    CASE(event_times),
    CASE(launches_that_cuda_refuses),
    CASE(arguments_are_converted_as_in_a_call),
    CASE(every_thread_runs_once),
    CASE(refusals),
    CASE(destroyed_streams_finish_their_work),
    CASE(copies_and_fills),
    CASE(many_threads_issue),
    CASE(sleeping_and_waking),
    CASE(idle_streams_use_no_processor),
    CASE(graphs_run_what_was_captured),
    CASE(graphs_run_side_by_side_what_nothing_orders),
    CASE(captures_that_cuda_refuses),
    CASE(vectors_and_products),
    CASE(random_numbers),
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
