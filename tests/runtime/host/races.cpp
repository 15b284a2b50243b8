// Programs that synchronise as CUDA asks (sound_*) and programs that lack one synchronisation (broken_*).
// ThreadSanitizer must be silent on the first and speak on the second, whatever the timing: `late()` gives the streams
// all the time to finish before the CPU goes on.
#include <unistd.h>

#include <vector>

#include "check.hpp"
#include "dagc/target.hpp"

namespace {

constexpr int kN = 1024;

__global__ void store(int* to, int value, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = value;
}
__global__ void copy(int* to, const int* from, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
__global__ void reversed(int* to, const int* from, int n) {
  __shared__ int tile[kN];
  const int i = threadIdx.x;
  tile[i] = from[i];
  __syncthreads();
  to[i] = tile[n - 1 - i];
}

struct World {
  int *x, *y, *z;
  cudaStream_t a, b;
  cudaEvent_t e, f;
  World() {
    GOOD(cudaMalloc(&x, kN * sizeof(int)));
    GOOD(cudaMallocHost(&y, kN * sizeof(int)));  // copies to it are asynchronous
    GOOD(cudaMalloc(&z, kN * sizeof(int)));
    for (cudaStream_t* stream : {&a, &b}) GOOD(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&e, &f}) GOOD(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    for (int i = 0; i < kN; ++i) x[i] = y[i] = z[i] = 0;
  }
  ~World() { GOOD(cudaDeviceSynchronize()); }  // what was issued does run, if late
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  void set(int* to, int value, cudaStream_t stream) const { dagc::launch(store, 4, 256, 0, stream, to, value, kN); }
  void move(int* to, const int* from, cudaStream_t stream) const {
    dagc::launch(copy, 4, 256, 0, stream, to, from, kN);
  }
};

constexpr int kLarge = (1 << 19) + 5;  // more elements than the accesses that ThreadSanitizer remembers of a thread

struct LargeWorld : World {
  int *sent, *other;
  LargeWorld() {
    GOOD(cudaMalloc(&sent, kLarge * sizeof(int)));
    GOOD(cudaMalloc(&other, kLarge * sizeof(int)));
  }
  ~LargeWorld() {
    GOOD(cudaFree(sent));  // which waits for all streams
    GOOD(cudaFree(other));
  }
  void fill(int* to, int value, cudaStream_t stream) const {
    dagc::launch(store, 64, 256, 0, stream, to, value, kLarge);
  }
};

void late() { usleep(5000); }
volatile int g_sink;  // or the compiler drops reads whose sum nobody wants
int use(const int* from, int n = kN) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += from[i];
  g_sink = sum;
  return sum;
}

// `b` forks from `a`, makes x, and joins again; then `a` reads it. All within a graph. Without `ordered` a reads early.
cudaGraphExec_t graph_of_two_streams(const World& w, bool ordered) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  GOOD(cudaStreamBeginCapture(w.a, cudaStreamCaptureModeRelaxed));
  GOOD(cudaEventRecord(w.e, w.a));
  GOOD(cudaStreamWaitEvent(w.b, w.e, 0));
  w.set(w.x, 1, w.b);
  GOOD(cudaEventRecord(w.f, w.b));
  if (!ordered) w.move(w.y, w.x, w.a);
  GOOD(cudaStreamWaitEvent(w.a, w.f, 0));
  if (ordered) w.move(w.y, w.x, w.a);
  GOOD(cudaStreamEndCapture(w.a, &graph));
  GOOD(cudaGraphInstantiate(&executable, graph, 0));
  GOOD(cudaGraphDestroy(graph));
  return executable;
}

// ---- sound ----------------------------------------------------------------------------------------------------------

void sound_event_synchronize() {
  const World w;
  for (int i = 1; i <= 50; ++i) {
    w.set(w.x, i, w.a);
    GOOD(cudaEventRecord(w.e, w.a));
    w.set(w.y, i, w.a);  // later work of the stream, on other memory, may go on
    GOOD(cudaEventSynchronize(w.e));
    EXPECT(use(w.x) == i * kN);
  }
  GOOD(cudaStreamSynchronize(w.a));
  EXPECT(use(w.y) == 50 * kN);
}
void sound_stream_synchronize() {
  const World w;
  for (int i = 1; i <= 50; ++i) {
    w.set(w.x, i, w.a);
    GOOD(cudaStreamSynchronize(w.a));
    EXPECT(use(w.x) == i * kN);
    w.x[0] = 7;  // and back: issuing comes before the operation
  }
}
void sound_stream_wait() {
  const World w;
  for (int i = 1; i <= 50; ++i) {
    w.set(w.x, i, w.a);
    GOOD(cudaEventRecord(w.e, w.a));
    GOOD(cudaStreamWaitEvent(w.b, w.e, 0));
    w.move(w.y, w.x, w.b);
    GOOD(cudaEventRecord(w.f, w.b));
    GOOD(cudaStreamWaitEvent(w.a, w.f, 0));
  }
  GOOD(cudaEventSynchronize(w.f));
  EXPECT(use(w.y) == 50 * kN);
}
void sound_through_the_cpu() {
  const World w;
  for (int i = 1; i <= 50; ++i) {
    w.set(w.x, i, w.a);
    GOOD(cudaEventRecord(w.e, w.a));
    GOOD(cudaEventSynchronize(w.e));
    w.move(w.y, w.x, w.b);
    GOOD(cudaStreamSynchronize(w.b));
  }
}
void sound_query() {
  const World w;
  w.set(w.x, 3, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  while (cudaEventQuery(w.e) == cudaErrorNotReady) usleep(100);
  EXPECT(use(w.x) == 3 * kN);
  w.set(w.x, 4, w.a);
  while (cudaStreamQuery(w.a) == cudaErrorNotReady) usleep(100);
  EXPECT(use(w.x) == 4 * kN);
}
void sound_device_synchronize() {
  const World w;
  w.set(w.x, 1, w.a);
  w.set(w.y, 2, w.b);
  GOOD(cudaMemset(w.z, 0, kN * sizeof(int)));
  GOOD(cudaDeviceSynchronize());
  EXPECT(use(w.x) + use(w.y) + use(w.z) == 3 * kN);
}
void sound_legacy_stream() {  // the null stream and a blocking one wait for one another
  const World w;
  cudaStream_t blocking;
  GOOD(cudaStreamCreate(&blocking));
  for (int i = 1; i <= 20; ++i) {
    w.set(w.x, i, blocking);
    w.move(w.y, w.x, nullptr);
    w.move(w.z, w.y, blocking);
  }
  GOOD(cudaMemcpy(w.x, w.z, sizeof(int), cudaMemcpyDeviceToHost));
  GOOD(cudaStreamSynchronize(blocking));
  EXPECT(use(w.z) == 20 * kN);
  GOOD(cudaStreamDestroy(blocking));
}
void sound_barriers() {  // threads of a block on several stacks are one thread to ThreadSanitizer
  const World w;
  w.set(w.x, 5, w.a);
  for (int i = 0; i < 20; ++i) {
    dagc::launch(reversed, 1, kN, 0, w.a, w.y, w.x, kN);
    dagc::launch(reversed, 1, kN, 0, w.a, w.x, w.y, kN);
  }
  GOOD(cudaStreamSynchronize(w.a));
  EXPECT(use(w.x) == 5 * kN);
}
void sound_message() {
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  GOOD(cudaEventSynchronize(w.e));
  DAGC_TSAN_READ(w.x, kN * sizeof(int));   // sent
  DAGC_TSAN_WRITE(w.y, kN * sizeof(int));  // received
  w.move(w.z, w.y, w.b);
  GOOD(cudaStreamSynchronize(w.b));
}

void sound_large() {
  const LargeWorld w;
  w.fill(w.sent, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  GOOD(cudaEventSynchronize(w.e));
  DAGC_TSAN_READ(w.sent, kLarge * sizeof(int));
  GOOD(cudaMemcpyAsync(w.other, w.sent, kLarge * sizeof(int), cudaMemcpyDeviceToDevice, w.b));
  GOOD(cudaMemsetAsync(w.other + 7, 0, (kLarge - 8) * sizeof(int), w.b));
  GOOD(cudaStreamSynchronize(w.b));
  EXPECT(use(w.other, kLarge) == 8);
}
void sound_graph() {
  const World w;
  const cudaGraphExec_t graph = graph_of_two_streams(w, true);
  for (int i = 0; i < 20; ++i) {
    GOOD(cudaGraphLaunch(graph, w.a));
    GOOD(cudaStreamSynchronize(w.a));
    EXPECT(use(w.y) == kN);
    w.y[3] = 0;
  }
  GOOD(cudaGraphExecDestroy(graph));
}

// ---- broken: one synchronisation is missing -------------------------------------------------------------------------

void broken_no_synchronize() {
  const World w;
  w.set(w.x, 1, w.a);
  late();
  use(w.x);
}
void broken_record_without_synchronize() {
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  late();
  use(w.x);
}
void broken_issuing_is_no_synchronize() {  // further use of a stream's queue shows the CPU nothing
  const World w;
  w.set(w.x, 1, w.a);
  for (int i = 0; i < 50; ++i) {
    w.set(w.y, i, w.a);
    usleep(100);
    GOOD(cudaEventRecord(w.e, w.a));
  }
  late();
  use(w.x);
}
void broken_wrong_stream() {
  const World w;
  w.set(w.x, 1, w.a);
  w.set(w.y, 1, w.b);
  late();
  GOOD(cudaStreamSynchronize(w.b));
  use(w.x);
}
void broken_record_too_early() {  // both operations are done when the CPU waits, but the record proves one
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  w.set(w.y, 1, w.a);
  late();
  GOOD(cudaEventSynchronize(w.e));
  use(w.x);
  use(w.y);
}
void broken_no_stream_wait() {
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  late();
  w.move(w.y, w.x, w.b);
  GOOD(cudaDeviceSynchronize());
}
void broken_wait_too_early() {  // the wait means the recording before it, which is before the write
  const World w;
  GOOD(cudaEventRecord(w.e, w.a));
  GOOD(cudaStreamWaitEvent(w.b, w.e, 0));
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  late();
  w.move(w.y, w.x, w.b);
  GOOD(cudaDeviceSynchronize());
}
void broken_wait_unrecorded() {
  const World w;
  w.set(w.x, 1, w.a);
  late();
  GOOD(cudaStreamWaitEvent(w.b, w.e, 0));
  w.move(w.y, w.x, w.b);
  GOOD(cudaDeviceSynchronize());
}
void broken_stale_event() {  // recorded again elsewhere: the first recording is forgotten
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  late();
  GOOD(cudaEventRecord(w.e, w.b));
  GOOD(cudaEventSynchronize(w.e));
  use(w.x);
}
void broken_reused_record() {  // an event used before, with other work, proves nothing of that later
  const World w;
  for (int i = 0; i < 4; ++i) {
    w.set(w.x, i, w.a);
    GOOD(cudaEventRecord(w.e, w.a));
    late();
  }
  for (int i = 0; i < 4; ++i) {
    GOOD(cudaEventRecord(w.e, w.b));
    GOOD(cudaEventSynchronize(w.e));
  }
  use(w.x);
}
void broken_write_while_read() {  // the CPU overwrites what was issued to be read; issuing again does not excuse it
  const World w;
  GOOD(cudaLaunchHostFunc(
      w.a, [](void*) { usleep(2000); }, nullptr));
  w.move(w.y, w.x, w.a);
  w.x[5] = 1;
  w.set(w.z, 1, w.a);
  GOOD(cudaStreamSynchronize(w.a));
}
void broken_graph() {  // the order of capturing is none
  const World w;
  const cudaGraphExec_t graph = graph_of_two_streams(w, false);
  GOOD(cudaGraphLaunch(graph, w.a));
  GOOD(cudaStreamSynchronize(w.a));
  GOOD(cudaGraphExecDestroy(graph));
}
void broken_graph_not_waited_for() {
  const World w;
  const cudaGraphExec_t graph = graph_of_two_streams(w, true);
  GOOD(cudaGraphLaunch(graph, w.a));
  late();
  use(w.y);
  GOOD(cudaGraphExecDestroy(graph));
}
void broken_memset_is_asynchronous() {
  const World w;
  GOOD(cudaMemset(w.x, 0, kN * sizeof(int)));
  late();
  w.move(w.y, w.x, w.a);
  GOOD(cudaDeviceSynchronize());
}
void broken_async_copy() {
  const World w;
  GOOD(cudaMemcpyAsync(w.y, w.x, kN * sizeof(int), cudaMemcpyDeviceToHost, w.a));
  late();
  use(w.y);
}
void broken_copy_of_pageable_memory() {  // it may be read when the copy is issued
  const World w;
  static std::vector<int> from(kN);
  GOOD(cudaLaunchHostFunc(
      w.a, [](void*) { from.assign(kN, 1); }, nullptr));
  GOOD(cudaMemcpyAsync(w.x, from.data(), kN * sizeof(int), cudaMemcpyHostToDevice, w.a));
}
void broken_barrier_kernel() {  // the kernel's threads wait for one another; nobody waits for the kernel
  const World w;
  dagc::launch(reversed, 1, kN, 0, w.a, w.y, w.x, kN);
  late();
  use(w.y);
}
void broken_query_not_ready() {
  const World w;
  GOOD(cudaLaunchHostFunc(
      w.a, [](void*) { usleep(20000); }, nullptr));
  w.set(w.x, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  EXPECT(cudaEventQuery(w.e) == cudaErrorNotReady);
  usleep(40000);
  use(w.x);
}
void broken_send_too_early() {
  const World w;
  w.set(w.x, 1, w.a);
  late();
  DAGC_TSAN_READ(w.x, kN * sizeof(int));
}
void broken_large_message() {  // 2 MB, and so much work after it that the stream's thread made a million accesses since
  const LargeWorld w;
  w.fill(w.sent, 1, w.a);
  for (int i = 0; i < 2; ++i) w.fill(w.other, 1, w.a);
  GOOD(cudaEventRecord(w.e, w.a));
  GOOD(cudaEventSynchronize(w.f));  // another event than the one meant
  usleep(100000);
  DAGC_TSAN_READ(w.sent, kLarge * sizeof(int));
}
void broken_large_kernel() {  // the CPU starts with what the kernel wrote first, a million accesses before its end
  const LargeWorld w;
  w.fill(w.sent, 1, w.a);
  usleep(100000);
  use(w.sent, kLarge);
}
void broken_large_copy() {
  const LargeWorld w;
  w.fill(w.sent, 1, w.a);
  usleep(100000);
  GOOD(cudaMemcpyAsync(w.other, w.sent, kLarge * sizeof(int), cudaMemcpyDeviceToDevice, w.b));
  GOOD(cudaDeviceSynchronize());
}
void broken_large_memset() {
  const LargeWorld w;
  w.fill(w.sent, 1, w.a);
  usleep(100000);
  GOOD(cudaMemsetAsync(w.sent, 0, kLarge * sizeof(int), w.b));
  GOOD(cudaDeviceSynchronize());
}
void broken_receive_into_use() {
  const World w;
  w.move(w.y, w.x, w.a);
  late();
  DAGC_TSAN_WRITE(w.x, kN * sizeof(int));
}
void broken_destroyed_stream() {
  const World w;
  w.set(w.x, 1, w.a);
  GOOD(cudaStreamDestroy(w.a));
  late();
  use(w.x);
}

constexpr Case kCases[] = {
#define CASE(name) \
  { #name, name }
    CASE(sound_event_synchronize),
    CASE(sound_stream_synchronize),
    CASE(sound_stream_wait),
    CASE(sound_through_the_cpu),
    CASE(sound_query),
    CASE(sound_device_synchronize),
    CASE(sound_legacy_stream),
    CASE(sound_barriers),
    CASE(sound_message),
    CASE(sound_large),
    CASE(sound_graph),
    CASE(broken_no_synchronize),
    CASE(broken_record_without_synchronize),
    CASE(broken_issuing_is_no_synchronize),
    CASE(broken_wrong_stream),
    CASE(broken_record_too_early),
    CASE(broken_no_stream_wait),
    CASE(broken_wait_too_early),
    CASE(broken_wait_unrecorded),
    CASE(broken_stale_event),
    CASE(broken_reused_record),
    CASE(broken_write_while_read),
    CASE(broken_memset_is_asynchronous),
    CASE(broken_graph),
    CASE(broken_graph_not_waited_for),
    CASE(broken_async_copy),
    CASE(broken_copy_of_pageable_memory),
    CASE(broken_barrier_kernel),
    CASE(broken_query_not_ready),
    CASE(broken_send_too_early),
    CASE(broken_large_message),
    CASE(broken_large_kernel),
    CASE(broken_large_copy),
    CASE(broken_large_memset),
    CASE(broken_receive_into_use),
    CASE(broken_destroyed_stream),
};

}  // namespace

int main(int count, char** arguments) { return run_cases(kCases, count, arguments); }
