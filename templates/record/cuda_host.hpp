// Records the calls of CUDA's runtime by a program that is compiled for the host target: each becomes a function here,
// which writes an event and calls the host target's. Included after those.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <type_traits>

#include "argument.hpp"
#include "dagc/fault.hpp"
#include "dagc/host_cublas.hpp"
#include "dagc/target.hpp"
#include "library_call.hpp"
#include "log.hpp"

#define DAGC_RECORDS  // for headers of libraries

namespace dagc::record {

// Where a call stands.
struct Site {
  Site(const char* file, int line) : file_(file), line_(line) { at(file, line); }
  std::string key() const { return std::string(file_) + ':' + std::to_string(line_); }

 private:
  const char* file_;
  int line_;
};

// A kernel as its launch names it; an instance of a template with the values of its arguments, which may be names there.
template <class... Parameters>
std::string kernel_name(const char* text, void (*kernel)(Parameters...)) {
  Dl_info found{};
  if (std::strchr(text, '<') == nullptr || dladdr(reinterpret_cast<void*>(kernel), &found) == 0) return text;
  int status = -1;
  char* whole = found.dli_sname == nullptr ? nullptr : abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status);
  const std::string name = status == 0 ? whole : "";
  std::free(whole);
  const std::size_t begin = name.find(' '), end = name.rfind(">(");  // `void k<32, true>(float*)`
  return begin < end && end != std::string::npos ? name.substr(begin + 1, end - begin) : text;
}
template <class Call>
std::string kernel_name(const char* text, const host::Template<Call>&) {
  return text;
}

inline std::string triple(dim3 size) {
  return "[" + std::to_string(size.x) + ", " + std::to_string(size.y) + ", " + std::to_string(size.z) + "]";
}

template <class... Arguments>
void describe(Event& event, const std::string& kernel, const LaunchGrid& grid, dim3 block, std::size_t shared,
              cudaStream_t stream, const Arguments&... arguments) {
  std::string list;
  ((list += (list.empty() ? "" : ", ") + argument(arguments)), ...);
  event.add("kernel", kernel).raw("grid", triple(grid.size)).raw("block", triple(block));
  event.add("shared", static_cast<long long>(shared)).add("stream", stream).raw("args", "[" + list + "]");
}

// A launch, between the tasks of its stream that record what it touches.
template <class Launch>
void watched_launch(const Event& event, cudaStream_t stream, const Launch& launch) {
  const auto one = std::make_shared<const Watch>(watch(event.number()));
  if (one->arrays.empty()) return launch();
  host::issue(stream, [one] { one->begin(); });
  launch();
  host::issue(stream, [one] { one->end(); });
}

// What a signal is said to come from, until the process ends.
inline const char* words(const std::string& text) {
  static std::set<std::string>& all = *new std::set<std::string>;
  return all.insert(text).first->c_str();
}

template <class Kernel>
struct Named {
  const char* name;
  Kernel kernel;
};
template <class Kernel>
Named<Kernel> named(const char* name, Kernel kernel) {
  return {name, kernel};
}

}  // namespace dagc::record

namespace dagc {

template <class... Parameters>
void launch(record::Named<void (*)(Parameters...)> kernel, LaunchGrid grid, dim3 block, std::size_t shared,
            cudaStream_t stream, typename host::Same<Parameters>::type... arguments) {
  record::at(grid.file, grid.line);
  if (!host::valid_launch(grid.size, block, shared)) record::Event("unsupported").add("call", "an invalid launch");
  record::Event event("launch");
  const std::string name = record::kernel_name(kernel.name, kernel.kernel);
  record::describe(event, name, grid, block, shared, stream, arguments...);
  const UnderWay under(record::words("kernel `" + name + "` at " + grid.file + ':' + std::to_string(grid.line)));
  record::watched_launch(event, stream, [&] { launch(kernel.kernel, grid, block, shared, stream, arguments...); });
}
template <class Call, class... Arguments>
void launch(record::Named<host::Template<Call>> kernel, LaunchGrid grid, dim3 block, std::size_t shared,
            cudaStream_t stream, Arguments... arguments) {
  record::at(grid.file, grid.line);
  if (!host::valid_launch(grid.size, block, shared)) record::Event("unsupported").add("call", "an invalid launch");
  record::Event event("launch");
  const std::string name = record::kernel_name(kernel.name, kernel.kernel);
  record::describe(event, name, grid, block, shared, stream, arguments...);
  const UnderWay under(record::words("kernel `" + name + "` at " + grid.file + ':' + std::to_string(grid.line)));
  record::watched_launch(event, stream, [&] { launch(kernel.kernel, grid, block, shared, stream, arguments...); });
}

}  // namespace dagc

#define DAGC_KERNEL_OF(...)                                                                 \
  dagc::host::kernel_of(                                                                    \
      [&](auto* any) -> decltype(dagc::host::address(any, __VA_ARGS__)) { return __VA_ARGS__; }, \
      [=](auto... arguments) -> decltype((__VA_ARGS__)(arguments...)) { (__VA_ARGS__)(arguments...); })
#undef DAGC_KERNEL
#define DAGC_KERNEL(...) dagc::record::named(#__VA_ARGS__, DAGC_KERNEL_OF(__VA_ARGS__))

namespace dagc::record {

inline void start() {
  static const bool done = [] {
    name_faults(0);
    std::snprintf(fault_head, sizeof fault_head, "terminated by ");
    device({[] { cudaDeviceSynchronize(); },
            [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
            [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
            [](std::size_t bytes) {
              void* memory = nullptr;
              return ::cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
            }});
    host::on_library_call = [](const char* name, const char* file, int line) {
      if (file != nullptr) at(file, line);
      Event("unsupported").add("call", name);
    };
    return true;
  }();
  (void)done;
}

// ---- memory ----

template <class T>
cudaError_t allocate(Site, const char* text, T** pointer, std::size_t bytes) {
  start();
  const cudaError_t error = ::cudaMalloc(pointer, bytes);
  if (error != cudaSuccess) return error;
  allocated(*pointer, bytes, "device", text);
  std::size_t width = 1;
  if constexpr (!std::is_void_v<T>) width = sizeof(T);
  const std::string first = std::string(text).substr(0, std::strcspn(text, ","));  // such as `(void**)&x`
  GuardedMemory::get().name(*pointer, bytes, width, first.substr(first.rfind('&') + 1));
  return error;
}
template <class T>
cudaError_t allocate_pinned(Site, const char* text, T** pointer, std::size_t bytes, unsigned int = 0) {
  start();
  const cudaError_t error = ::cudaMallocHost(pointer, bytes);
  if (error == cudaSuccess) allocated(*pointer, bytes, "pinned", text);
  return error;
}
template <class T>
cudaError_t allocate_managed(Site, const char* text, T** pointer, std::size_t bytes, unsigned int = 1) {
  start();
  const cudaError_t error = ::cudaMallocManaged(pointer, bytes);
  if (error == cudaSuccess) allocated(*pointer, bytes, "managed", text);
  return error;
}
inline cudaError_t release(Site, void* memory) {
  if (memory != nullptr) freed(memory);
  return ::cudaFree(memory);
}
inline cudaError_t release_pinned(Site, void* memory) {
  if (memory != nullptr) freed(memory);
  return ::cudaFreeHost(memory);
}

// `pitch` 0: one row.
inline void copied(Event& event, const void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                   std::size_t width, std::size_t height, cudaStream_t stream, bool waits) {
  event.add("to", to).add("from", from).add("bytes", static_cast<long long>(width));
  event.add("rows", static_cast<long long>(height)).add("to_pitch", static_cast<long long>(to_pitch));
  event.add("from_pitch", static_cast<long long>(from_pitch)).add("stream", stream).add("waits", waits);
  if (height == 1 && on_device(to) && !on_device(from)) event.given(from, width);
}
// What a copy brought to the host, which may compute with it: not whole fields.
inline void arrived(Event& event, const void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  constexpr std::size_t kMost = 1 << 18;
  if (bytes > kMost || on_device(to) || !on_device(from)) return;
  ::cudaStreamSynchronize(stream);
  event.given(to, bytes);
}
inline cudaError_t copy(Site, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Event event("copy");
  copied(event, to, 0, from, 0, bytes, 1, nullptr, kind != cudaMemcpyDeviceToDevice);
  const cudaError_t error = ::cudaMemcpy(to, from, bytes, kind);
  arrived(event, to, from, bytes, nullptr);
  return error;
}
inline cudaError_t copy_async(Site, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr) {
  Event event("copy");
  copied(event, to, 0, from, 0, bytes, 1, stream, false);
  const cudaError_t error = ::cudaMemcpyAsync(to, from, bytes, kind, stream);
  arrived(event, to, from, bytes, stream);
  return error;
}
inline cudaError_t copy_2d(Site, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  Event event("copy");
  copied(event, to, to_pitch, from, from_pitch, width, height, nullptr, kind != cudaMemcpyDeviceToDevice);
  return ::cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t copy_2d_async(Site, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                 std::size_t width, std::size_t height, cudaMemcpyKind kind,
                                 cudaStream_t stream = nullptr) {
  Event event("copy");
  copied(event, to, to_pitch, from, from_pitch, width, height, stream, false);
  return ::cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
inline cudaError_t fill(Site, void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr) {
  Event event("fill");
  event.add("to", to).add("value", value & 255).add("bytes", static_cast<long long>(bytes)).add("stream", stream);
  return ::cudaMemsetAsync(to, value, bytes, stream);
}
inline cudaError_t fill_rows(Site, void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                             cudaStream_t stream = nullptr) {
  Event event("fill");
  event.add("to", to).add("value", value & 255).add("bytes", static_cast<long long>(width)).add("stream", stream);
  event.add("rows", static_cast<long long>(height)).add("pitch", static_cast<long long>(pitch));
  return ::cudaMemset2DAsync(to, pitch, value, width, height, stream);
}
template <class T>
cudaError_t to_symbol(Site, const char* text, T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  start();
  variable(&symbol, sizeof symbol, element<std::remove_cv_t<std::remove_all_extents_t<T>>>(), text);
  return ::cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}

// ---- devices ----

// As many as the ranks of a machine may ask for: each has the one of this machine as its own.
inline cudaError_t count_devices(int* count) {
  *count = 64;
  return cudaSuccess;
}
inline cudaError_t device_properties(cudaDeviceProp* properties, int) { return ::cudaGetDeviceProperties(properties, 0); }
inline cudaError_t set_device(Site, int device) {
  static const int first = device;
  if (device != first) Event("unsupported").add("call", "cudaSetDevice");
  return ::cudaSetDevice(0);
}

// ---- streams, events, waits ----

inline cudaError_t create_stream(Site, cudaStream_t* stream, unsigned int flags = cudaStreamDefault, int = 0) {
  const cudaError_t error = ::cudaStreamCreateWithFlags(stream, flags);
  if (error == cudaSuccess) Event("stream").add("stream", *stream).add("apart", flags & cudaStreamNonBlocking);
  return error;
}
inline cudaError_t wait_device(Site) {
  Event("sync").add("what", "device");
  return ::cudaDeviceSynchronize();
}
inline cudaError_t wait_stream(Site, cudaStream_t stream) {
  Event("sync").add("what", "stream").add("stream", stream);
  return ::cudaStreamSynchronize(stream);
}
inline cudaError_t wait_event(Site, cudaEvent_t event) {
  Event("sync").add("what", "event").add("event", event);
  return ::cudaEventSynchronize(event);
}
inline cudaError_t stream_waits(Site, cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0) {
  Event("wait").add("stream", stream).add("event", event);
  return ::cudaStreamWaitEvent(stream, event, flags);
}
inline cudaError_t record_event(Site, cudaEvent_t event, cudaStream_t stream = nullptr) {
  Event("record").add("event", event).add("stream", stream);
  return ::cudaEventRecord(event, stream);
}
template <class T>
cudaError_t allocate_rows(Site, const char* text, T** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  start();
  const cudaError_t error = ::cudaMallocPitch(pointer, pitch, width, height);
  if (error == cudaSuccess) allocated(*pointer, *pitch * height, "device", text);
  return error;
}
template <class T>
cudaError_t allocate_of_pool(Site site, const char* text, T** pointer, std::size_t bytes, cudaStream_t) {
  return allocate(site, text, pointer, bytes);
}
inline cudaError_t release_of_pool(Site site, void* memory, cudaStream_t stream) {
  ::cudaStreamSynchronize(stream);
  return release(site, memory);
}
inline cudaError_t register_pinned(Site, const char* text, void* memory, std::size_t bytes, unsigned int flags) {
  start();
  const cudaError_t error = ::cudaHostRegister(memory, bytes, flags);
  if (error == cudaSuccess) allocated(memory, bytes, "pinned", text, false);
  return error;
}
inline cudaError_t unregister_pinned(Site, void* memory) {
  freed(memory);
  return ::cudaHostUnregister(memory);
}
// A call that no program expresses, by its name.
inline Site unsupported(Site site, const char* call) {
  Event("unsupported").add("call", call);
  return site;
}

// ---- cuBLAS ----

struct HostLibrary {
  static cudaStream_t stream(cublasHandle_t handle) { return handle->stream; }
  static cublasPointerMode_t mode(cublasHandle_t handle) { return handle->mode; }
  static void set_mode(cublasHandle_t handle, cublasPointerMode_t mode) { handle->mode = mode; }
  template <class Call>
  static void watched(const Event& event, cudaStream_t stream, const Call& call) {
    watched_launch(event, stream, call);
  }
};
inline cublasStatus_t transfer(Site site, void* to, long to_step, const void* from, long from_step, long bytes, long rows,
                               cudaMemcpyKind kind) {
  const cudaError_t error = to_step == bytes && from_step == bytes
                                ? copy(site, to, from, bytes * rows, kind)
                                : copy_2d(site, to, to_step, from, from_step, bytes, rows, kind);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}
template <cudaMemcpyKind kind>
cublasStatus_t copy_vector(Site site, int n, int size, const void* x, int incx, void* y, int incy) {
  return transfer(site, y, long(incy) * size, x, long(incx) * size, size, n, kind);
}
template <cudaMemcpyKind kind>
cublasStatus_t copy_matrix(Site site, int rows, int columns, int size, const void* a, int lda, void* b, int ldb) {
  return transfer(site, b, long(ldb) * size, a, long(lda) * size, long(rows) * size, columns, kind);
}
inline cublasStatus_t create_library(Site, cublasHandle_t* handle) {
  start();
  const cublasStatus_t status = ::cublasCreate(handle);
  prepare_results();
  return status;
}
template <class... Parameters, class... Arguments>
cublasStatus_t call_library(Site site, const char* name, cublasStatus_t (*function)(cublasHandle_t, Parameters...),
                            cublasHandle_t handle, Arguments... arguments) {
  return library_call<HostLibrary>(name, site.key(), function, handle, static_cast<Parameters>(arguments)...);
}

}  // namespace dagc::record

#define DAGC_RECORD_SITE dagc::record::Site(__FILE__, __LINE__)
#define cudaGetDeviceCount(...) dagc::record::count_devices(__VA_ARGS__)
#define cudaGetDeviceProperties(...) dagc::record::device_properties(__VA_ARGS__)
#define cudaSetDevice(...) dagc::record::set_device(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMalloc(...) dagc::record::allocate(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaMallocHost(...) dagc::record::allocate_pinned(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaHostAlloc(...) dagc::record::allocate_pinned(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaMallocManaged(...) dagc::record::allocate_managed(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaFree(...) dagc::record::release(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaFreeHost(...) dagc::record::release_pinned(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemcpy(...) dagc::record::copy(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemcpyAsync(...) dagc::record::copy_async(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemcpy2D(...) dagc::record::copy_2d(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemcpy2DAsync(...) dagc::record::copy_2d_async(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemset(...) dagc::record::fill(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemsetAsync(...) dagc::record::fill(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemcpyToSymbol(...) dagc::record::to_symbol(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaStreamCreate(...) dagc::record::create_stream(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaStreamCreateWithFlags(...) dagc::record::create_stream(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaStreamCreateWithPriority(...) dagc::record::create_stream(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaDeviceSynchronize() dagc::record::wait_device(DAGC_RECORD_SITE)
#define cudaStreamSynchronize(...) dagc::record::wait_stream(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaEventSynchronize(...) dagc::record::wait_event(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaStreamWaitEvent(...) dagc::record::stream_waits(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaEventRecord(...) dagc::record::record_event(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMallocPitch(...) dagc::record::allocate_rows(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaMallocAsync(...) dagc::record::allocate_of_pool(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaFreeAsync(...) dagc::record::release_of_pool(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaHostRegister(...) dagc::record::register_pinned(DAGC_RECORD_SITE, #__VA_ARGS__, __VA_ARGS__)
#define cudaHostUnregister(...) dagc::record::unregister_pinned(DAGC_RECORD_SITE, __VA_ARGS__)
#define DAGC_UNSUPPORTED(name, ...) (dagc::record::unsupported(DAGC_RECORD_SITE, #name), ::name(__VA_ARGS__))
#define cudaStreamBeginCapture(...) DAGC_UNSUPPORTED(cudaStreamBeginCapture, __VA_ARGS__)
#define cudaLaunchHostFunc(...) DAGC_UNSUPPORTED(cudaLaunchHostFunc, __VA_ARGS__)
#define cudaMemcpyFromSymbol(...) DAGC_UNSUPPORTED(cudaMemcpyFromSymbol, __VA_ARGS__)
#define cudaMemcpyFromSymbolAsync(...) DAGC_UNSUPPORTED(cudaMemcpyFromSymbolAsync, __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(...) DAGC_UNSUPPORTED(cudaMemcpyToSymbolAsync, __VA_ARGS__)
#define cudaGetSymbolAddress(...) DAGC_UNSUPPORTED(cudaGetSymbolAddress, __VA_ARGS__)
#define cudaMalloc3D(...) DAGC_UNSUPPORTED(cudaMalloc3D, __VA_ARGS__)
#define cudaMemcpy3D(...) DAGC_UNSUPPORTED(cudaMemcpy3D, __VA_ARGS__)
#define cudaMemcpy3DAsync(...) DAGC_UNSUPPORTED(cudaMemcpy3DAsync, __VA_ARGS__)
#define cudaMemset2D(...) dagc::record::fill_rows(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemset2DAsync(...) dagc::record::fill_rows(DAGC_RECORD_SITE, __VA_ARGS__)
#define cudaMemset3D(...) DAGC_UNSUPPORTED(cudaMemset3D, __VA_ARGS__)
#define cudaMemcpyPeer(...) DAGC_UNSUPPORTED(cudaMemcpyPeer, __VA_ARGS__)
#define cudaMemcpyPeerAsync(...) DAGC_UNSUPPORTED(cudaMemcpyPeerAsync, __VA_ARGS__)
#define cublasSetVector(...) dagc::record::copy_vector<cudaMemcpyHostToDevice>(DAGC_RECORD_SITE, __VA_ARGS__)
#define cublasGetVector(...) dagc::record::copy_vector<cudaMemcpyDeviceToHost>(DAGC_RECORD_SITE, __VA_ARGS__)
#define cublasSetMatrix(...) dagc::record::copy_matrix<cudaMemcpyHostToDevice>(DAGC_RECORD_SITE, __VA_ARGS__)
#define cublasGetMatrix(...) dagc::record::copy_matrix<cudaMemcpyDeviceToHost>(DAGC_RECORD_SITE, __VA_ARGS__)
#define DAGC_BLAS_CALL(name, ...) dagc::record::call_library(DAGC_RECORD_SITE, #name, ::name, __VA_ARGS__)
#define cublasCreate(...) dagc::record::create_library(DAGC_RECORD_SITE, __VA_ARGS__)
#define cublasSaxpy(...) DAGC_BLAS_CALL(cublasSaxpy, __VA_ARGS__)
#define cublasDaxpy(...) DAGC_BLAS_CALL(cublasDaxpy, __VA_ARGS__)
#define cublasSscal(...) DAGC_BLAS_CALL(cublasSscal, __VA_ARGS__)
#define cublasDscal(...) DAGC_BLAS_CALL(cublasDscal, __VA_ARGS__)
#define cublasScopy(...) DAGC_BLAS_CALL(cublasScopy, __VA_ARGS__)
#define cublasDcopy(...) DAGC_BLAS_CALL(cublasDcopy, __VA_ARGS__)
#define cublasSswap(...) DAGC_BLAS_CALL(cublasSswap, __VA_ARGS__)
#define cublasDswap(...) DAGC_BLAS_CALL(cublasDswap, __VA_ARGS__)
#define cublasSdot(...) DAGC_BLAS_CALL(cublasSdot, __VA_ARGS__)
#define cublasDdot(...) DAGC_BLAS_CALL(cublasDdot, __VA_ARGS__)
#define cublasSnrm2(...) DAGC_BLAS_CALL(cublasSnrm2, __VA_ARGS__)
#define cublasDnrm2(...) DAGC_BLAS_CALL(cublasDnrm2, __VA_ARGS__)
#define cublasSasum(...) DAGC_BLAS_CALL(cublasSasum, __VA_ARGS__)
#define cublasDasum(...) DAGC_BLAS_CALL(cublasDasum, __VA_ARGS__)
#define cublasSgemv(...) DAGC_BLAS_CALL(cublasSgemv, __VA_ARGS__)
#define cublasDgemv(...) DAGC_BLAS_CALL(cublasDgemv, __VA_ARGS__)
#define cublasSsymv(...) DAGC_BLAS_CALL(cublasSsymv, __VA_ARGS__)
#define cublasDsymv(...) DAGC_BLAS_CALL(cublasDsymv, __VA_ARGS__)
#define cublasSger(...) DAGC_BLAS_CALL(cublasSger, __VA_ARGS__)
#define cublasDger(...) DAGC_BLAS_CALL(cublasDger, __VA_ARGS__)
#define cublasSgemm(...) DAGC_BLAS_CALL(cublasSgemm, __VA_ARGS__)
#define cublasDgemm(...) DAGC_BLAS_CALL(cublasDgemm, __VA_ARGS__)
#define cublasSgeam(...) DAGC_BLAS_CALL(cublasSgeam, __VA_ARGS__)
#define cublasDgeam(...) DAGC_BLAS_CALL(cublasDgeam, __VA_ARGS__)
#define cublasSdgmm(...) DAGC_BLAS_CALL(cublasSdgmm, __VA_ARGS__)
#define cublasDdgmm(...) DAGC_BLAS_CALL(cublasDdgmm, __VA_ARGS__)
#define cublasIsamax(...) DAGC_BLAS_CALL(cublasIsamax, __VA_ARGS__)
#define cublasIdamax(...) DAGC_BLAS_CALL(cublasIdamax, __VA_ARGS__)
