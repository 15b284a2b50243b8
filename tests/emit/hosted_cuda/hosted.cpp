// What the stand-in for PyCUDA calls, in the libdriver.so of the test: the runtime of the host target.

extern "C" {

void* hosted_stream() {
  cudaStream_t out = nullptr;
  return cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking) == cudaSuccess ? out : nullptr;
}
void* hosted_event() {
  cudaEvent_t out = nullptr;
  return cudaEventCreateWithFlags(&out, cudaEventDisableTiming) == cudaSuccess ? out : nullptr;
}
void* hosted_malloc(std::size_t bytes, int page_locked) {
  void* out = nullptr;
  const cudaError_t status = page_locked ? cudaMallocHost(&out, bytes) : cudaMalloc(&out, bytes);
  return status == cudaSuccess ? out : nullptr;
}
int hosted_copy(void* to, const void* from, std::size_t bytes, int kind) {
  return cudaMemcpy(to, from, bytes, static_cast<cudaMemcpyKind>(kind));
}
int hosted_copy_async(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, static_cast<cudaMemcpyKind>(kind), static_cast<cudaStream_t>(stream));
}
int hosted_memset(void* to, int value, std::size_t bytes) { return cudaMemset(to, value, bytes); }
int hosted_record(void* event, void* stream) {
  return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
}
int hosted_wait(void* stream, void* event) {
  return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0);
}
int hosted_event_synchronize(void* event) { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); }
int hosted_stream_synchronize(void* stream) { return cudaStreamSynchronize(static_cast<cudaStream_t>(stream)); }
int hosted_synchronize() { return cudaDeviceSynchronize(); }
}
