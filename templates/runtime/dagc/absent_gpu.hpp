// For a program all of whose GPU ops may run on the CPU: without a GPU, memory is host memory,
// copies are memcpy, and streams and events do nothing, since no kernel is launched. Included
// before all other headers, whose calls of the CUDA runtime then go through these functions.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

namespace dagc {
// Set before the first of these calls: by take_gpu_if_any, or when an instance of a library is created.
inline bool gpu_absent = false;

inline cudaError_t host_memory(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
}  // namespace dagc

template <class T>
cudaError_t dagc_or_host_malloc(T** memory, std::size_t bytes) {
  return dagc::gpu_absent ? dagc::host_memory(reinterpret_cast<void**>(memory), bytes) : cudaMalloc(memory, bytes);
}
template <class T>
cudaError_t dagc_or_host_malloc_host(T** memory, std::size_t bytes) {
  return dagc::gpu_absent ? dagc::host_memory(reinterpret_cast<void**>(memory), bytes) : cudaMallocHost(memory, bytes);
}
inline cudaError_t dagc_or_host_free(void* memory) {
  return dagc::gpu_absent ? (std::free(memory), cudaSuccess) : cudaFree(memory);
}
inline cudaError_t dagc_or_host_free_host(void* memory) {
  return dagc::gpu_absent ? (std::free(memory), cudaSuccess) : cudaFreeHost(memory);
}
inline cudaError_t dagc_or_host_memcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return dagc::gpu_absent ? (std::memcpy(to, from, bytes), cudaSuccess) : cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t dagc_or_host_memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return dagc::gpu_absent ? (std::memcpy(to, from, bytes), cudaSuccess) : cudaMemcpyAsync(to, from, bytes, kind, stream);
}
inline cudaError_t dagc_or_host_memcpy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                          std::size_t height, cudaMemcpyKind kind) {
  if (!dagc::gpu_absent) return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
  for (std::size_t row = 0; row < height; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  return cudaSuccess;
}
inline cudaError_t dagc_or_host_memset(void* memory, int byte, std::size_t bytes) {
  return dagc::gpu_absent ? (std::memset(memory, byte, bytes), cudaSuccess) : cudaMemset(memory, byte, bytes);
}
inline cudaError_t dagc_or_host_memset_async(void* memory, int byte, std::size_t bytes, cudaStream_t stream = nullptr) {
  return dagc::gpu_absent ? (std::memset(memory, byte, bytes), cudaSuccess) : cudaMemsetAsync(memory, byte, bytes, stream);
}
inline cudaError_t dagc_or_host_stream_create(cudaStream_t* stream, unsigned flags) {
  return dagc::gpu_absent ? (*stream = nullptr, cudaSuccess) : cudaStreamCreateWithFlags(stream, flags);
}
inline cudaError_t dagc_or_host_stream_create_with_priority(cudaStream_t* stream, unsigned flags, int priority) {
  return dagc::gpu_absent ? (*stream = nullptr, cudaSuccess) : cudaStreamCreateWithPriority(stream, flags, priority);
}
inline cudaError_t dagc_or_host_stream_priorities(int* least, int* greatest) {
  return dagc::gpu_absent ? (*least = *greatest = 0, cudaSuccess) : cudaDeviceGetStreamPriorityRange(least, greatest);
}
inline cudaError_t dagc_or_host_stream_destroy(cudaStream_t stream) { return dagc::gpu_absent ? cudaSuccess : cudaStreamDestroy(stream); }
inline cudaError_t dagc_or_host_stream_synchronize(cudaStream_t stream) {
  return dagc::gpu_absent ? cudaSuccess : cudaStreamSynchronize(stream);
}
inline cudaError_t dagc_or_host_stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0) {
  return dagc::gpu_absent ? cudaSuccess : cudaStreamWaitEvent(stream, event, flags);
}
// All work before it on the stream is complete.
inline cudaError_t dagc_or_host_launch_host_func(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return dagc::gpu_absent ? (function(data), cudaSuccess) : cudaLaunchHostFunc(stream, function, data);
}
inline cudaError_t dagc_or_host_stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return dagc::gpu_absent ? (*status = cudaStreamCaptureStatusNone, cudaSuccess) : cudaStreamIsCapturing(stream, status);
}
inline cudaError_t dagc_or_host_event_create(cudaEvent_t* event, unsigned flags) {
  return dagc::gpu_absent ? (*event = nullptr, cudaSuccess) : cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t dagc_or_host_event_destroy(cudaEvent_t event) { return dagc::gpu_absent ? cudaSuccess : cudaEventDestroy(event); }
inline cudaError_t dagc_or_host_event_record(cudaEvent_t event, cudaStream_t stream = nullptr) {
  return dagc::gpu_absent ? cudaSuccess : cudaEventRecord(event, stream);
}
inline cudaError_t dagc_or_host_event_synchronize(cudaEvent_t event) { return dagc::gpu_absent ? cudaSuccess : cudaEventSynchronize(event); }
inline cudaError_t dagc_or_host_device_synchronize() { return dagc::gpu_absent ? cudaSuccess : cudaDeviceSynchronize(); }
inline cudaError_t dagc_or_host_get_last_error() { return dagc::gpu_absent ? cudaSuccess : cudaGetLastError(); }
inline cudaError_t dagc_or_host_get_device(int* device) { return dagc::gpu_absent ? (*device = 0, cudaSuccess) : cudaGetDevice(device); }
inline cudaError_t dagc_or_host_set_device(int device) { return dagc::gpu_absent ? cudaSuccess : cudaSetDevice(device); }
inline cudaError_t dagc_or_host_get_device_flags(unsigned* flags) {
  return dagc::gpu_absent ? (*flags = cudaDeviceScheduleAuto, cudaSuccess) : cudaGetDeviceFlags(flags);
}
inline cudaError_t dagc_or_host_mem_get_info(std::size_t* left, std::size_t* whole) {
  return dagc::gpu_absent ? (*left = *whole = 0, cudaSuccess) : cudaMemGetInfo(left, whole);
}
inline cudaError_t dagc_or_host_get_attribute(int* value, cudaDeviceAttr attribute, int device) {
  return dagc::gpu_absent ? (*value = 0, cudaSuccess) : cudaDeviceGetAttribute(value, attribute, device);
}
// Memory of the host counts as page-locked: without a GPU there is no other.
inline cudaError_t dagc_or_host_pointer_get_attributes(cudaPointerAttributes* at, const void* memory) {
  return dagc::gpu_absent ? (at->type = cudaMemoryTypeHost, cudaSuccess) : cudaPointerGetAttributes(at, memory);
}
inline cudaError_t dagc_or_host_get_properties(cudaDeviceProp* properties, int device) {
  if (!dagc::gpu_absent) return cudaGetDeviceProperties(properties, device);
  std::strcpy(properties->name, "none");
  return cudaSuccess;
}

// Names of the CUDA runtime in the following headers. Structures and constants of the CUDA runtime keep theirs.
#define cudaMalloc dagc_or_host_malloc
#define cudaMallocHost dagc_or_host_malloc_host
#define cudaFree dagc_or_host_free
#define cudaFreeHost dagc_or_host_free_host
#define cudaMemcpy dagc_or_host_memcpy
#define cudaMemcpyAsync dagc_or_host_memcpy_async
#define cudaMemcpy2D dagc_or_host_memcpy_2d
#define cudaMemset dagc_or_host_memset
#define cudaMemsetAsync dagc_or_host_memset_async
#define cudaStreamCreateWithFlags dagc_or_host_stream_create
#define cudaStreamCreateWithPriority dagc_or_host_stream_create_with_priority
#define cudaDeviceGetStreamPriorityRange dagc_or_host_stream_priorities
#define cudaStreamDestroy dagc_or_host_stream_destroy
#define cudaStreamSynchronize dagc_or_host_stream_synchronize
#define cudaStreamWaitEvent dagc_or_host_stream_wait_event
#define cudaLaunchHostFunc dagc_or_host_launch_host_func
#define cudaStreamIsCapturing dagc_or_host_stream_is_capturing
#define cudaEventCreateWithFlags dagc_or_host_event_create
#define cudaEventDestroy dagc_or_host_event_destroy
#define cudaEventRecord dagc_or_host_event_record
#define cudaEventSynchronize dagc_or_host_event_synchronize
#define cudaDeviceSynchronize dagc_or_host_device_synchronize
#define cudaGetLastError dagc_or_host_get_last_error
#define cudaGetDevice dagc_or_host_get_device
#define cudaSetDevice dagc_or_host_set_device
#define cudaGetDeviceFlags dagc_or_host_get_device_flags
#define cudaMemGetInfo dagc_or_host_mem_get_info
#define cudaPointerGetAttributes dagc_or_host_pointer_get_attributes
#define cudaDeviceGetAttribute dagc_or_host_get_attribute
#undef cudaGetDeviceProperties
#define cudaGetDeviceProperties dagc_or_host_get_properties

#else

namespace dagc {
inline bool gpu_absent = false;  // not needed on the host target
}

#endif
