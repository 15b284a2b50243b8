// Host target: memory of pools, of the application, in rows of a pitch and in three dimensions; attributes of a device.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "host_page_locked.hpp"
#include "host_runtime.hpp"
#include "host_types.hpp"

// ---- pools: memory is given back when the work of the stream so far is done -------------------------------------------

using cudaMemPool_t = struct CUmemPool_st*;
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic = 2,
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4
};
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;  // the one that there is
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

template <class T>
cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return dagc::host::issue(stream, [=] { dagc::GuardedMemory::get().release(pointer); });
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  *free = page * static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES));
  *total = page * static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return cudaSuccess;
}

// ---- memory of the application, and managed memory --------------------------------------------------------------------

inline constexpr unsigned int cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2,
                              cudaHostRegisterReadOnly = 8, cudaHostAllocWriteCombined = 4;
inline cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned int) {
  dagc::host::PageLocked::get().add(memory, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void* memory) {
  cudaDeviceSynchronize();
  dagc::host::PageLocked::get().remove(memory);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T** there, void* here, unsigned int) {
  *there = static_cast<T*>(here);
  return cudaSuccess;
}
inline constexpr int cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2;
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly = 2,
  cudaMemAdviseSetPreferredLocation = 3,
  cudaMemAdviseUnsetPreferredLocation = 4,
  cudaMemAdviseSetAccessedBy = 5,
  cudaMemAdviseUnsetAccessedBy = 6,
};
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeDevice = 1, cudaMemLocationTypeHost = 2 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
// All memory is that of the host: nothing moves.
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned int, cudaStream_t = nullptr) {
  return cudaSuccess;
}
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }

inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

// ---- rows of a pitch, and three dimensions ----------------------------------------------------------------------------

struct cudaPitchedPtr {
  void* ptr;
  std::size_t pitch, xsize, ysize;
};
struct cudaExtent {
  std::size_t width, height, depth;
};
struct cudaPos {
  std::size_t x, y, z;
};
inline cudaPitchedPtr make_cudaPitchedPtr(void* memory, std::size_t pitch, std::size_t x, std::size_t y) {
  return {memory, pitch, x, y};
}
inline cudaExtent make_cudaExtent(std::size_t width, std::size_t height, std::size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(std::size_t x, std::size_t y, std::size_t z) { return {x, y, z}; }

namespace dagc::host {
inline std::size_t pitch_of(std::size_t width) { return (width + 511) / 512 * 512; }
}  // namespace dagc::host

template <class T>
cudaError_t cudaMallocPitch(T** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = dagc::host::pitch_of(width);
  return cudaMalloc(pointer, *pitch * height);
}
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  *pointer = {nullptr, dagc::host::pitch_of(extent.width), extent.width, extent.height};
  return cudaMalloc(&pointer->ptr, pointer->pitch * extent.height * extent.depth);
}
inline cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                                     cudaStream_t stream = nullptr) {
  if (width > pitch) return dagc::host::remember(cudaErrorInvalidValue);
  return dagc::host::issue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(to) + row * pitch, value, width);
  });
}
inline cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  cudaError_t error = cudaSuccess;
  for (std::size_t z = 0; z < extent.depth && error == cudaSuccess; ++z)
    error = cudaMemset2D(static_cast<char*>(to.ptr) + z * to.pitch * to.ysize, to.pitch, value, extent.width, extent.height);
  return error;
}
// Without arrays of textures.
struct cudaMemcpy3DParms {
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  cudaMemcpyKind kind;
};
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t stream = nullptr) {
  const auto begin = [](cudaPitchedPtr of, cudaPos at) {
    return static_cast<char*>(of.ptr) + (at.z * of.ysize + at.y) * of.pitch + at.x;
  };
  char* const to = begin(copy->dstPtr, copy->dstPos);
  const char* const from = begin(copy->srcPtr, copy->srcPos);
  cudaError_t error = cudaSuccess;
  for (std::size_t z = 0; z < copy->extent.depth && error == cudaSuccess; ++z)
    error = cudaMemcpy2DAsync(to + z * copy->dstPtr.ysize * copy->dstPtr.pitch, copy->dstPtr.pitch,
                              from + z * copy->srcPtr.ysize * copy->srcPtr.pitch, copy->srcPtr.pitch,
                              copy->extent.width, copy->extent.height, copy->kind, stream);
  return error;
}
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  const cudaError_t error = cudaMemcpy3DAsync(copy);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

// ---- attributes, and what a CPU has not -------------------------------------------------------------------------------

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115,
};
inline constexpr int cudaComputeModeDefault = 0, cudaComputeModeExclusive = 1, cudaComputeModeProhibited = 2;
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp of;
  const cudaError_t error = cudaGetDeviceProperties(&of, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = of.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(of.sharedMemPerBlock); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(of.sharedMemPerBlockOptin); break;
    case cudaDevAttrWarpSize: *value = of.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = of.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = of.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: *value = 0;  // unknown here
  }
  return cudaSuccess;
}

enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
template <class F>
cudaError_t cudaFuncSetCacheConfig(F*, cudaFuncCache) {
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
inline cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  *value = limit == cudaLimitStackSize ? 512 << 10 : 8 << 20;
  return cudaSuccess;
}
