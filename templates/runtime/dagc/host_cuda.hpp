// Host target: the part of the CUDA runtime API that dagc's code uses, for machines without a GPU.
//
// It compiles the same emitted text with g++: streams are threads (host_stream.hpp), blocks run on them
// (host_block.hpp). docs/reference/host-target.md lists what is supported and what differs.
#pragma once

#if !defined(__linux__)
#error "dagc's host target needs Linux (futexes)"
#endif

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>

#include "host_block.hpp"
#include "host_device.hpp"
#include "host_math.hpp"
#include "host_page_locked.hpp"
#include "host_graph.hpp"
#include "host_runtime.hpp"
#include "host_stream.hpp"
#include "host_types.hpp"
#include "tsan.hpp"

namespace dagc::host {

inline bool valid_launch(const dim3& grid, const dim3& block, std::size_t shared) {
  const bool grid_fits = grid.x - 1 < 0x7fffffffu && grid.y - 1 < 65535 && grid.z - 1 < 65535;
  const bool block_fits = block.x - 1 < kMaxThreads && block.y - 1 < kMaxThreads && block.z - 1 < 64;
  return grid_fits && block_fits && block.x * block.y * block.z <= kMaxThreads && shared <= kMaxShared;
}

// Whether CUDA takes a launch; records the error otherwise. A stream is of the GPU that was current when it was made.
inline bool may_launch(const dim3& grid, const dim3& block, std::size_t shared, cudaStream_t stream) {
  if (!valid_launch(grid, block, shared)) return remember(cudaErrorInvalidConfiguration) == cudaSuccess;
  return stream == nullptr || stream->device.load(std::memory_order_relaxed) == device ||
         remember(cudaErrorInvalidResourceHandle) == cudaSuccess;
}

template <class T>
struct Same {
  using type = T;
};

template <class Call>
struct Template {
  Call call;
};

template <class Any, class... Parameters>
auto address(Any*, void (*kernel)(Parameters...)) -> decltype(kernel);

template <class Address, class Call>
auto kernel_of(Address address, Call call) {
  if constexpr (std::is_invocable_v<Address, int*>) {
    return address(static_cast<int*>(nullptr));
  } else {
    return Template<Call>{call};
  }
}

}  // namespace dagc::host

namespace dagc {

// The grid of a launch; records the place of the launch, for messages.
struct LaunchGrid {
  LaunchGrid(dim3 grid, const char* from = __builtin_FILE(), int at = __builtin_LINE())
      : size(grid), file(from), line(at) {}
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  LaunchGrid(Number blocks, const char* from = __builtin_FILE(), int at = __builtin_LINE())
      : size(static_cast<unsigned int>(blocks)), file(from), line(at) {}
  dim3 size;
  const char* file;
  int line;
};

// kernel<<<grid, block, shared, stream>>>(arguments...). cudaGetLastError reports a launch that CUDA would reject.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), LaunchGrid grid, dim3 block, std::size_t shared, cudaStream_t stream,
            typename host::Same<Parameters>::type... arguments) {
  if (!host::may_launch(grid.size, block, shared, stream)) return;
  const host::Site site{reinterpret_cast<const void*>(kernel), grid.file, grid.line};
  const dim3 size = grid.size;
  host::issue(stream, [=] { host::run_grid(site, size, block, shared, [&] { kernel(arguments...); }); });
}

// The same of a template, which becomes a function when it is called with the arguments.
template <class Call, class... Arguments>
void launch(host::Template<Call> kernel, LaunchGrid grid, dim3 block, std::size_t shared, cudaStream_t stream,
            Arguments... arguments) {
  if (!host::may_launch(grid.size, block, shared, stream)) return;
  const host::Site site{nullptr, grid.file, grid.line};
  const dim3 size = grid.size;
  host::issue(stream, [=] { host::run_grid(site, size, block, shared, [&] { kernel.call(arguments...); }); });
}

}  // namespace dagc

// The kernel of a launch: a pointer to it, or, of a template whose arguments the call decides, how to call it.
#define DAGC_KERNEL(...)                                                                                              \
  dagc::host::kernel_of(                                                                                              \
      [&](auto* any) -> decltype(dagc::host::address(any, __VA_ARGS__)) { return __VA_ARGS__; },                      \
      [=](auto... arguments) -> decltype((__VA_ARGS__)(arguments...)) { (__VA_ARGS__)(arguments...); })

// ---- errors, device -------------------------------------------------------------------------------------------------

inline cudaError_t cudaGetLastError() {
  const cudaError_t error = dagc::host::last_error;
  dagc::host::last_error = cudaSuccess;
  return error;
}
inline cudaError_t cudaPeekAtLastError() { return dagc::host::last_error; }

// One, or as many as a rank of the program has (`dagc::take_gpu`); DAGC_HOST_GPUS limits them.
inline cudaError_t cudaGetDeviceCount(int* count) {
  const char* const limit = std::getenv("DAGC_HOST_GPUS");
  *count = limit != nullptr && std::atoi(limit) > 0 ? std::atoi(limit) : dagc::host::gpus.load();
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
  if (device < 0 || device >= gpus) return dagc::host::remember(cudaErrorInvalidDevice);
  dagc::host::device = device;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = dagc::host::device;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  *flags = cudaDeviceScheduleAuto;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceCanAccessPeer(int* direct, int, int) {
  *direct = 1;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() {
  if (dagc::host::capturing) return dagc::host::spoil(cudaErrorStreamCaptureUnsupported);
  dagc::host::Runtime::get().synchronize_all();
  return cudaSuccess;
}
inline cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor;
  int integrated = 1, canMapHostMemory = 1, unifiedAddressing = 1, managedMemory = 1, concurrentManagedAccess = 1;
  int pageableMemoryAccess = 1, concurrentKernels = 1, asyncEngineCount = 1, cooperativeLaunch = 0, computeMode = 0;
  // Unknown here.
  int clockRate = 0, memoryClockRate = 0, memoryBusWidth = 0, l2CacheSize = 0, ECCEnabled = 0, regsPerMultiprocessor = 65536;
  int pciBusID = 0, pciDeviceID = 0, pciDomainID = 0;
  std::size_t totalConstMem = 64 * 1024, sharedMemPerMultiprocessor = 228 * 1024, memPitch = 0x7fffffff;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
  if (device < 0 || device >= gpus) return dagc::host::remember(cudaErrorInvalidDevice);
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  *properties = {"host",
                 static_cast<std::size_t>(pages) * static_cast<std::size_t>(page),
                 48 * 1024,
                 dagc::host::kMaxShared,
                 65536,
                 32,
                 1024,
                 {1024, 1024, 64},
                 {0x7fffffff, 65535, 65535},
                 0,
                 0,
                 cores,
                 2048};
  return cudaSuccess;
}
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
template <class F>
cudaError_t cudaFuncSetAttribute(F*, cudaFuncAttribute attribute, int value) {
  const bool fits = attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
                    (value >= 0 && static_cast<std::size_t>(value) <= dagc::host::kMaxShared);
  return dagc::host::remember(fits ? cudaSuccess : cudaErrorInvalidValue);
}
// Limited by threads only, since registers are not limited here. Blocks of one launch run one after another
// nevertheless.
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F*, int threads, std::size_t shared) {
  const bool valid = threads > 0 && threads <= static_cast<int>(dagc::host::kMaxThreads);
  *blocks = valid && shared <= dagc::host::kMaxShared ? 2048 / threads : 0;
  return dagc::host::remember(valid ? cudaSuccess : cudaErrorInvalidValue);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = dagc::host::allocate(&memory, bytes);
  *pointer = static_cast<T*>(memory);
  return error;
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned int = cudaHostAllocDefault) {
  const cudaError_t error = cudaMalloc(pointer, bytes);
  if (error == cudaSuccess) dagc::host::PageLocked::get().add(*pointer, bytes);
  return error;
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned int) {
  return cudaMallocHost(pointer, bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** pointer, std::size_t bytes, unsigned int = cudaMemAttachGlobal) {
  return cudaMalloc(pointer, bytes);
}
// Waits for all streams first, as CUDA does. What is freed twice is an error, as there.
inline cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr) cudaDeviceSynchronize();
  if (pointer != nullptr && !dagc::GuardedMemory::get().has(pointer)) return dagc::host::remember(cudaErrorInvalidValue);
  dagc::GuardedMemory::get().release(pointer);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* pointer) {
  dagc::host::PageLocked::get().remove(pointer);
  return cudaFree(pointer);
}

namespace dagc::host {

inline void copy(void* to, const void* from, std::size_t bytes) {
  tsan::for_each_piece(bytes, [=](std::size_t offset, std::size_t piece) {
    std::memcpy(static_cast<char*>(to) + offset, static_cast<const char*>(from) + offset, piece);
  });
}

inline cudaError_t check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return remember(cudaErrorInvalidMemcpyDirection);
  return bytes != 0 && (to == nullptr || from == nullptr) ? remember(cudaErrorInvalidValue) : cudaSuccess;
}

}  // namespace dagc::host

inline cudaError_t cudaStreamSynchronize(cudaStream_t handle);

// Pageable memory is read when the copy is issued, which CUDA may do, and is complete when a copy to it returns.
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr) {
  if (const cudaError_t error = dagc::host::check_copy(to, from, bytes, kind); error != cudaSuccess) return error;
  const auto pageable = [&](const void* memory) {
    return !dagc::host::captures(stream) && !dagc::host::PageLocked::get().has(memory);
  };
  if (bytes != 0 && kind == cudaMemcpyHostToDevice && pageable(from)) {
    const std::shared_ptr<char[]> staged(new char[bytes]);
    dagc::host::copy(staged.get(), from, bytes);
    return dagc::host::issue(stream, [=] { dagc::host::copy(to, staged.get(), bytes); });
  }
  const cudaError_t error = dagc::host::issue(stream, [=] { dagc::host::copy(to, from, bytes); });
  const bool waits = bytes != 0 && kind == cudaMemcpyDeviceToHost && pageable(to);
  return error == cudaSuccess && waits ? cudaStreamSynchronize(stream) : error;
}
// Returns when done, except device to device: the host does not wait for that copy, as in CUDA.
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cudaError_t error = dagc::host::check_copy(to, from, bytes, kind);
  if (error == cudaSuccess) error = dagc::host::issue(nullptr, [=] { dagc::host::copy(to, from, bytes); });
  if (error == cudaSuccess && kind != cudaMemcpyDeviceToDevice) dagc::host::Runtime::get().synchronize_null();
  return error;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr) {
  if (bytes != 0 && to == nullptr) return dagc::host::remember(cudaErrorInvalidValue);
  return dagc::host::issue(stream, [=] {
    dagc::tsan::for_each_piece(bytes, [=](std::size_t offset, std::size_t piece) {
      std::memset(static_cast<char*>(to) + offset, value, piece);
    });
  });
}
// The host does not wait for it, as in CUDA: a non-blocking stream must be synchronised.
inline cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                     std::size_t width, std::size_t height, cudaMemcpyKind,
                                     cudaStream_t stream = nullptr) {
  if (width > to_pitch || width > from_pitch) return dagc::host::remember(cudaErrorInvalidValue);
  return dagc::host::issue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
}
inline cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  if (error == cudaSuccess) dagc::host::Runtime::get().synchronize_null();
  return error;
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, std::size_t bytes, std::size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync(reinterpret_cast<char*>(&symbol) + offset, from, bytes, kind, stream);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes, kind);
}

template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, kind, stream);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, kind);
}

template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = const_cast<void*>(static_cast<const void*>(&symbol));
  return cudaSuccess;
}

// ---- streams --------------------------------------------------------------------------------------------------------

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  *stream = dagc::host::Runtime::get().make_stream(flags);
  (*stream)->device.store(dagc::host::device, std::memory_order_relaxed);
  return cudaSuccess;
}
// Streams have no priorities, as on GPUs without them.
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
// Returns immediately, as in CUDA: issued work still runs.
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return dagc::host::remember(stream != nullptr && stream->close() ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  CUstream_st* stream = dagc::host::Runtime::get().resolve(handle);
  if (stream == nullptr) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captures(stream)) return dagc::host::spoil(cudaErrorStreamCaptureUnsupported);
  dagc::host::Runtime::get().synchronize(*stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CUstream_st* stream = dagc::host::Runtime::get().resolve(handle);
  if (stream == nullptr) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captures(stream)) return dagc::host::spoil(cudaErrorStreamCaptureUnsupported);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return dagc::host::issue(stream, [=] { function(data); });
}
// Later work of the stream waits for the event's latest recording so far; recording it again does not affect this.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int = cudaEventWaitDefault) {
  CUstream_st* stream = dagc::host::Runtime::get().resolve(handle);
  if (stream == nullptr || event == nullptr || !event->open())
    return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captured(event)) {
    dagc::host::capturing->wait(stream, event);
    return cudaSuccess;
  }
  if (dagc::host::captures(stream)) return dagc::host::spoil(cudaErrorStreamCaptureIsolation);
  if (dagc::host::Record* record = event->held())
    stream->push([record] {
      record->wait();
      record->drop();
    });
  return cudaSuccess;
}

// ---- events ---------------------------------------------------------------------------------------------------------

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  *event = dagc::host::Runtime::get().make_event(flags);
  (*event)->device.store(dagc::host::device, std::memory_order_relaxed);
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags = cudaEventDefault) {
  return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return dagc::host::remember(event != nullptr && event->close() ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle = nullptr) {
  CUstream_st* stream = dagc::host::Runtime::get().resolve(handle);
  if (stream == nullptr || event == nullptr || !event->open())
    return dagc::host::remember(cudaErrorInvalidResourceHandle);
  constexpr auto relaxed = std::memory_order_relaxed;
  if (handle != nullptr && stream->device.load(relaxed) != event->device.load(relaxed))
    return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captures(stream))
    dagc::host::capturing->record(stream, event);
  else
    event->record(*stream);
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == nullptr || !event->open()) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captured(event)) return dagc::host::spoil(cudaErrorCapturedEvent);
  if (dagc::host::Record* record = event->held()) {
    record->wait();
    record->drop();
  }
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr || !event->open()) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  if (dagc::host::captured(event)) return dagc::host::spoil(cudaErrorCapturedEvent);
  dagc::host::Record* record = event->held();
  if (record == nullptr) return cudaSuccess;
  const bool reached = record->reached();
  if (reached) record->acquire();
  record->drop();
  return reached ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  if (first == nullptr || last == nullptr || !first->timed() || !last->timed())
    return dagc::host::remember(cudaErrorInvalidResourceHandle);
  dagc::host::Record* const from = first->held();
  dagc::host::Record* const to = last->held();
  const bool recorded = from != nullptr && to != nullptr, reached = recorded && from->reached() && to->reached();
  if (reached) *milliseconds = static_cast<float>(static_cast<double>(to->time() - from->time()) * 1e-6);
  if (from != nullptr) from->drop();
  if (to != nullptr) to->drop();
  if (!recorded) return dagc::host::remember(cudaErrorInvalidResourceHandle);
  return reached ? cudaSuccess : cudaErrorNotReady;
}

#include "host_memory.hpp"
