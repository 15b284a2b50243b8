// Records the calls of CUDA by a program as it is, on a GPU: CUPTI calls a function here before and after each, of a
// runtime that is linked statically too. The driver loads this library where CUDA_INJECTION64_PATH names it; LD_PRELOAD
// also does, for MPI's calls (mpi.cpp).
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "log.hpp"

namespace dagc::record {
namespace {

// ---- functions of the driver, which is not linked: it is there only where CUDA runs ----

struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  template <class F>
  F find(const char* name) const {
    return library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
  }
#define DAGC_DRIVER(name, symbol) decltype(&::name) name##_ = find<decltype(&::name)>(symbol)
  DAGC_DRIVER(cuCtxSynchronize, "cuCtxSynchronize");
  DAGC_DRIVER(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  DAGC_DRIVER(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  DAGC_DRIVER(cuMemAlloc, "cuMemAlloc_v2");
  DAGC_DRIVER(cuCtxGetDevice, "cuCtxGetDevice");
  DAGC_DRIVER(cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  DAGC_DRIVER(cuFuncGetParamInfo, "cuFuncGetParamInfo");
  DAGC_DRIVER(cuKernelGetParamInfo, "cuKernelGetParamInfo");

  void wait() const {
    if (cuCtxSynchronize_ != nullptr) cuCtxSynchronize_();
  }
  std::string gpu() const {  // empty: not known
    CUdevice device = 0;
    CUuuid uuid{};
    const bool known = cuCtxGetDevice_ != nullptr && cuDeviceGetUuid_ != nullptr &&
                       cuCtxGetDevice_(&device) == CUDA_SUCCESS && cuDeviceGetUuid_(&uuid, device) == CUDA_SUCCESS;
    return known ? hex(uuid.bytes, sizeof uuid.bytes) : "";
  }
  bool parameter(CUfunction f, std::size_t index, std::size_t& size) const {  // the runtime passes handles of both kinds
    std::size_t offset = 0;
    const auto kernel = reinterpret_cast<CUkernel>(f);
    return (cuKernelGetParamInfo_ != nullptr && cuKernelGetParamInfo_(kernel, index, &offset, &size) == CUDA_SUCCESS) ||
           (cuFuncGetParamInfo_ != nullptr && cuFuncGetParamInfo_(f, index, &offset, &size) == CUDA_SUCCESS);
  }
};
const Driver& driver() {
  static const Driver& one = *new Driver;
  return one;
}

// ---- where a call stands ----

struct Image {
  std::uintptr_t base = 0, begin = 0, end = 0;
};

// The return addresses in the program, from the call outwards, as addr2line takes them: of the calls themselves.
std::string frames() {
  static const Image image = [] {
    Image found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {  // the first is the program
          Image& one = *static_cast<Image*>(to);
          one.base = info->dlpi_addr;
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
              one.begin = one.base + info->dlpi_phdr[i].p_vaddr;
              one.end = one.begin + info->dlpi_phdr[i].p_memsz;
            }
          return 1;
        },
        &found);
    return found;
  }();
  void* stack[48];
  const int count = backtrace(stack, 48);
  std::string out;
  for (int i = 0; i < count; ++i) {
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(stack[i]);
    if (at > image.begin && at <= image.end) out += (out.empty() ? "" : ", ") + std::to_string(at - 1 - image.base);
  }
  return "[" + out + "]";
}

// The library of CUDA that makes a call; "" if the program does.
std::string library() {
  static const char* const begins[] = {"libcublas", "libcufft", "libcurand", "libcusparse", "libcusolver",
                                       "libcudnn", "libcutensor", "libnccl", "libnpp"};
  void* stack[48];
  const int count = backtrace(stack, 48);
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(stack[i], &info) == 0 || info.dli_fname == nullptr) continue;
    std::string name = info.dli_fname;
    name = name.substr(name.rfind('/') + 1);
    for (const char* const begin : begins)
      if (name.rfind(begin, 0) == 0) return name.substr(3, name.find('.') - 3);
  }
  return "";
}

// ---- launches ----

std::string demangled(const char* name) {
  int status = -1;
  char* whole = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string out = status == 0 ? whole : name;
  std::free(whole);
  return out;
}

struct Signature {
  std::string name;
  std::vector<std::string> parameters;
};

// `void k<32>(float*, int)`: k<32> with float* and int.
Signature signature(const std::string& text) {
  Signature out;
  int depth = 0;
  std::size_t open = text.size();
  for (std::size_t i = text.size(); i-- > 0 && text.back() == ')';) {  // the bracket of the last one
    depth += text[i] == ')' ? 1 : text[i] == '(' ? -1 : 0;
    if (depth == 0) {
      open = i;
      break;
    }
  }
  const std::size_t space = text.find(' ');
  out.name = text.substr(0, open);
  if (!out.name.empty() && out.name.back() == '>' && space < out.name.find('<')) out.name = out.name.substr(space + 1);
  std::string one;
  depth = 0;
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '<' || c == '(' || c == '[' ? 1 : c == '>' || c == ')' || c == ']' ? -1 : 0;
    if ((c == ',' && depth == 0) || i + 1 == text.size()) {
      if (!one.empty()) out.parameters.push_back(one);
      one.clear();
    } else if (c != ' ' || !one.empty()) {
      one += c;
    }
  }
  return out;
}

struct Type {
  const char* of;
  long long bytes;
};

// The element type of the language and its size; of a vector of CUDA's too. Size 0: unknown.
Type type_of(const std::string& name) {
  static const std::map<std::string, Type> known = {
      {"bool", {"bool", 1}}, {"char", {"i8", 1}}, {"signed char", {"i8", 1}}, {"unsigned char", {"u8", 1}},
      {"short", {"i16", 2}}, {"unsigned short", {"u16", 2}}, {"int", {"i32", 4}}, {"unsigned int", {"u32", 4}},
      {"long", {"i64", 8}}, {"unsigned long", {"u64", 8}}, {"long long", {"i64", 8}},
      {"unsigned long long", {"u64", 8}}, {"float", {"f32", 4}}, {"double", {"f64", 8}}, {"void", {"void", 1}},
  };
  static const std::map<std::string, long long> vectors = {
      {"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"int", 4}, {"uint", 4}, {"long", 8}, {"ulong", 8},
      {"longlong", 8}, {"ulonglong", 8}, {"float", 4}, {"double", 8},
  };
  if (const auto at = known.find(name); at != known.end()) return at->second;
  const char last = name.empty() ? '\0' : name.back();
  const auto at = vectors.find(name.substr(0, name.empty() ? 0 : name.size() - 1));
  if (at == vectors.end() || last < '1' || last > '4') return {"struct", 0};
  return {"struct", at->second * (last - '0')};
}

std::string argument(const std::string& type, const void* value, std::size_t bytes) {
  if (type.size() > 1 && type.back() == '*' && bytes == sizeof(void*)) {
    std::string element = type.substr(0, type.size() - 1);
    const std::string suffix = " const";
    const bool constant = element.size() > suffix.size() &&
                          element.compare(element.size() - suffix.size(), suffix.size(), suffix) == 0;
    if (constant) element.resize(element.size() - suffix.size());
    const Type of = element.back() == '*' ? Type{"pointer", 8} : type_of(element);
    std::uintptr_t p = 0;
    std::memcpy(&p, value, sizeof p);
    return "{\"p\": " + std::to_string(p) + ", \"of\": " + quoted(of.of) + ", \"bytes\": " +
           std::to_string(of.bytes) + ", \"const\": " + (constant ? "1" : "0") + ", \"type\": " + quoted(element) + "}";
  }
  const Type of = type_of(type);
  bool points = false;
  for (std::size_t at = 0; of.bytes == 0 && at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(value) + at, sizeof word);
    points = points || on_device(word);
  }
  return "{\"of\": " + quoted(of.of) + ", \"bytes\": " + std::to_string(bytes) + ", \"points\": " +
         (points ? "1" : "0") + ", \"hex\": " + quoted(hex(value, bytes)) + ", \"type\": " + quoted(type) + "}";
}

std::string triple(unsigned x, unsigned y, unsigned z) {
  return "[" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + "]";
}

struct LaunchOf {
  CUfunction f;
  unsigned grid[3], block[3], shared;
  CUstream stream;
  void** values;
};

void launched(const char* symbol, const LaunchOf& one) {
  const Signature kernel = signature(demangled(symbol));
  Event event("launch");
  std::string list;
  std::size_t count = 0, bytes = 0;
  for (; one.values != nullptr && driver().parameter(one.f, count, bytes); ++count) {
    const std::string type = count < kernel.parameters.size() ? kernel.parameters[count] : "";
    list += (count == 0 ? "" : ", ") + argument(type, one.values[count], bytes);
  }
  event.add("kernel", kernel.name).add("symbol", symbol);
  event.raw("grid", triple(one.grid[0], one.grid[1], one.grid[2]));
  event.raw("block", triple(one.block[0], one.block[1], one.block[2]));
  event.add("shared", static_cast<long long>(one.shared)).add("stream", one.stream);
  event.add("library", library());
  event.raw("args", "[" + list + "]").add("parameters", static_cast<long long>(kernel.parameters.size()));
}

void driver_call(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  if (call.callbackSite != CUPTI_API_ENTER) return;
  const char* symbol = call.symbolName == nullptr ? "" : call.symbolName;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz) {
    const auto& p = *static_cast<const cuLaunchKernel_params*>(call.functionParams);
    launched(symbol, {p.f, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
                      p.sharedMemBytes, p.hStream, p.kernelParams});
  } else if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz) {
    const auto& p = *static_cast<const cuLaunchKernelEx_params*>(call.functionParams);
    const CUlaunchConfig& c = *p.config;
    launched(symbol, {p.f, {c.gridDimX, c.gridDimY, c.gridDimZ}, {c.blockDimX, c.blockDimY, c.blockDimZ},
                      c.sharedMemBytes, c.hStream, p.kernelParams});
  } else {
    Event("unsupported").add("call", "a cooperative launch");
  }
}

// ---- calls of the runtime, by their names: versions and default streams of a thread have suffixes ----

constexpr std::size_t kBroughtBytes = 1 << 18;  // that a copy brings to the host, of which it may compute: no fields

// `pitch` 0: one row.
Event* copied(const void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
              std::size_t height, const void* stream, bool waits) {
  Event& event = *new Event("copy");
  event.add("to", to).add("from", from).add("bytes", static_cast<long long>(width));
  event.add("rows", static_cast<long long>(height)).add("to_pitch", static_cast<long long>(to_pitch));
  event.add("from_pitch", static_cast<long long>(from_pitch)).add("stream", stream).add("waits", waits);
  if (height == 1 && on_device(to) && !on_device(from)) event.given(from, width);
  return &event;
}
void arrived(Event& event, const void* to, const void* from, std::size_t bytes) {
  if (bytes > kBroughtBytes || on_device(to) || !on_device(from)) return;
  driver().wait();
  event.given(to, bytes);
}
void made(const void* stream, unsigned flags) {
  Event("stream").add("stream", stream).add("apart", flags & cudaStreamNonBlocking);
}
Event* filled(const void* to, int value, std::size_t bytes, const void* stream, std::size_t rows, std::size_t pitch) {
  Event& event = *new Event("fill");
  event.add("to", to).add("value", value & 255).add("bytes", static_cast<long long>(bytes));
  event.add("stream", stream).add("rows", static_cast<long long>(rows));
  event.add("pitch", static_cast<long long>(pitch));
  return &event;
}

// A variable of constant memory is what the host gave to it last, kept here: where it lies on the GPU is not known.
void set(const void* symbol, const void* from, std::size_t bytes, std::size_t offset) {
  static std::map<const void*, std::vector<char>>& all = *new std::map<const void*, std::vector<char>>;
  std::vector<char>& kept = all[symbol];
  if (offset != 0 || on_device(from) || (!kept.empty() && kept.size() != bytes)) {
    Event("unsupported").add("call", "cudaMemcpyToSymbol of a part");
    return;
  }
  kept.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  variable(kept.data(), bytes, "", "");
}

struct Call {
  Event* (*before)(const void* parameters);
  void (*after)(Event* event, const void* parameters);
};

template <class P>
const P& as(const void* parameters) {
  return *static_cast<const P*>(parameters);
}
Event* nothing(const void*) { return nullptr; }
void done(Event*, const void*) {}

template <class P>
Event* copy_event(const void* p) {
  const P& c = as<P>(p);
  const void* stream = nullptr;
  if constexpr (!std::is_same_v<P, cudaMemcpy_v3020_params>) stream = c.stream;
  const bool waits = std::is_same_v<P, cudaMemcpy_v3020_params> && c.kind != cudaMemcpyDeviceToDevice;
  return copied(c.dst, 0, c.src, 0, c.count, 1, stream, waits);
}
template <class P>
Event* set_event(const void* p) {
  const P& c = as<P>(p);
  set(c.symbol, c.src, c.count, c.offset);
  return nullptr;
}
template <class P>
void copy_done(Event* event, const void* p) {
  arrived(*event, as<P>(p).dst, as<P>(p).src, as<P>(p).count);
}
template <class P>
Event* copy_2d_event(const void* p) {
  const P& c = as<P>(p);
  const void* stream = nullptr;
  if constexpr (!std::is_same_v<P, cudaMemcpy2D_v3020_params>) stream = c.stream;
  const bool waits = std::is_same_v<P, cudaMemcpy2D_v3020_params> && c.kind != cudaMemcpyDeviceToDevice;
  return copied(c.dst, c.dpitch, c.src, c.spitch, c.width, c.height, stream, waits);
}
const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call>& all = *new std::map<std::string, Call>{
      {"cudaMalloc", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaMalloc_v3020_params>(p);
         allocated(*c.devPtr, c.size, "device", "");
       }}},
      {"cudaMallocAsync", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaMallocAsync_v11020_params>(p);
         allocated(*c.devPtr, c.size, "device", "");
       }}},
      {"cudaMallocPitch", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaMallocPitch_v3020_params>(p);
         allocated(*c.devPtr, *c.pitch * c.height, "device", "");
       }}},
      {"cudaMallocHost", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaMallocHost_v3020_params>(p);
         allocated(*c.ptr, c.size, "pinned", "");
       }}},
      {"cudaHostAlloc", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaHostAlloc_v3020_params>(p);
         allocated(*c.pHost, c.size, "pinned", "");
       }}},
      {"cudaHostRegister", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaHostRegister_v4000_params>(p);
         allocated(c.ptr, c.size, "pinned", "", false);
       }}},
      {"cudaMallocManaged", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaMallocManaged_v6000_params>(p);
         allocated(*c.devPtr, c.size, "managed", "");
       }}},
      {"cudaFree", {[](const void* p) -> Event* {
         if (as<cudaFree_v3020_params>(p).devPtr != nullptr) freed(as<cudaFree_v3020_params>(p).devPtr);
         return nullptr;
       }, done}},
      {"cudaFreeAsync", {[](const void* p) -> Event* {
         driver().wait();
         if (as<cudaFreeAsync_v11020_params>(p).devPtr != nullptr) freed(as<cudaFreeAsync_v11020_params>(p).devPtr);
         return nullptr;
       }, done}},
      {"cudaFreeHost", {[](const void* p) -> Event* {
         if (as<cudaFreeHost_v3020_params>(p).ptr != nullptr) freed(as<cudaFreeHost_v3020_params>(p).ptr);
         return nullptr;
       }, done}},
      {"cudaHostUnregister", {[](const void* p) -> Event* {
         freed(as<cudaHostUnregister_v4000_params>(p).ptr);
         return nullptr;
       }, done}},
      {"cudaMemcpy", {copy_event<cudaMemcpy_v3020_params>, copy_done<cudaMemcpy_v3020_params>}},
      {"cudaMemcpyAsync", {copy_event<cudaMemcpyAsync_v3020_params>, copy_done<cudaMemcpyAsync_v3020_params>}},
      {"cudaMemcpyToSymbol", {set_event<cudaMemcpyToSymbol_v3020_params>, done}},
      {"cudaMemcpyToSymbolAsync", {set_event<cudaMemcpyToSymbolAsync_v3020_params>, done}},
      {"cudaMemcpy2D", {copy_2d_event<cudaMemcpy2D_v3020_params>, done}},
      {"cudaMemcpy2DAsync", {copy_2d_event<cudaMemcpy2DAsync_v3020_params>, done}},
      {"cudaMemset", {[](const void* p) {
         const auto& c = as<cudaMemset_v3020_params>(p);
         return filled(c.devPtr, c.value, c.count, nullptr, 1, 0);
       }, done}},
      {"cudaMemsetAsync", {[](const void* p) {
         const auto& c = as<cudaMemsetAsync_v3020_params>(p);
         return filled(c.devPtr, c.value, c.count, c.stream, 1, 0);
       }, done}},
      {"cudaMemset2D", {[](const void* p) {
         const auto& c = as<cudaMemset2D_v3020_params>(p);
         return filled(c.devPtr, c.value, c.width, nullptr, c.height, c.pitch);
       }, done}},
      {"cudaMemset2DAsync", {[](const void* p) {
         const auto& c = as<cudaMemset2DAsync_v3020_params>(p);
         return filled(c.devPtr, c.value, c.width, c.stream, c.height, c.pitch);
       }, done}},
      {"cudaStreamCreate", {nothing, [](Event*, const void* p) {
         made(*as<cudaStreamCreate_v3020_params>(p).pStream, 0);
       }}},
      {"cudaStreamCreateWithFlags", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaStreamCreateWithFlags_v5000_params>(p);
         made(*c.pStream, c.flags);
       }}},
      {"cudaStreamCreateWithPriority", {nothing, [](Event*, const void* p) {
         const auto& c = as<cudaStreamCreateWithPriority_v5050_params>(p);
         made(*c.pStream, c.flags);
       }}},
      {"cudaDeviceSynchronize", {[](const void*) {
         Event* event = new Event("sync");
         event->add("what", "device");
         return event;
       }, done}},
      {"cudaStreamSynchronize", {[](const void* p) {
         Event* event = new Event("sync");
         event->add("what", "stream").add("stream", as<cudaStreamSynchronize_v3020_params>(p).stream);
         return event;
       }, done}},
      {"cudaEventSynchronize", {[](const void* p) {
         Event* event = new Event("sync");
         event->add("what", "event").add("event", as<cudaEventSynchronize_v3020_params>(p).event);
         return event;
       }, done}},
      {"cudaStreamWaitEvent", {[](const void* p) {
         Event* event = new Event("wait");
         const auto& c = as<cudaStreamWaitEvent_v3020_params>(p);
         event->add("stream", c.stream).add("event", c.event);
         return event;
       }, done}},
      {"cudaEventRecord", {[](const void* p) {
         Event* event = new Event("record");
         const auto& c = as<cudaEventRecord_v3020_params>(p);
         event->add("event", c.event).add("stream", c.stream);
         return event;
       }, done}},
      {"cudaSetDevice", {[](const void* p) -> Event* {
         static int first = as<cudaSetDevice_v3020_params>(p).device;
         if (as<cudaSetDevice_v3020_params>(p).device == first) return nullptr;
         Event* event = new Event("unsupported");
         event->add("call", "cudaSetDevice");
         return event;
       }, done}},
  };
  return all;
}

// What no program expresses, by the begins of names.
bool unsupported(const std::string& name) {
  static const char* const begins[] = {
      "cudaStreamBeginCapture", "cudaGraphLaunch", "cudaLaunchHostFunc", "cudaStreamAddCallback", "cudaMemcpyFromSymbol",
      "cudaMalloc3D", "cudaMallocArray", "cudaMallocFromPool", "cudaMemcpy3D", "cudaMemset3D",
      "cudaMemcpyPeer", "cudaMemcpyBatch", "cudaMemcpyToArray", "cudaMemcpy2DToArray", "cudaMemcpy2DFromArray",
      "cudaCreateTextureObject", "cudaCreateSurfaceObject", "cudaMemcpyFromArray",
  };
  for (const char* const begin : begins)
    if (name.rfind(begin, 0) == 0) return true;
  return false;
}

void runtime_call(const CUpti_CallbackData& call) {
  static thread_local int depth = 0;  // calls of the runtime by itself are not the program's
  const bool enter = call.callbackSite == CUPTI_API_ENTER;
  if (!enter) --depth;
  const int level = depth;
  if (enter) ++depth;
  if (level != 0) return;
  std::string name = call.functionName;
  name = name.substr(0, name.find('_'));
  const auto found = calls().find(name);
  if (found == calls().end()) {
    if (enter && unsupported(name)) Event("unsupported").add("call", name);
    return;
  }
  if (enter) {
    *call.correlationData = reinterpret_cast<std::uint64_t>(found->second.before(call.functionParams));
    return;
  }
  Event* event = reinterpret_cast<Event*>(*call.correlationData);
  const bool good = *static_cast<const cudaError_t*>(call.functionReturnValue) == cudaSuccess;
  if (good) found->second.after(event, call.functionParams);
  delete event;
}

void CUPTIAPI called(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
    driver_call(id, call);
  else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API)
    runtime_call(call);
}

void check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "unknown error";
  cuptiGetResultString(result, &text);
  if (const char* folder = std::getenv("DAGC_RECORD_TO"))
    std::ofstream(std::string(folder) + "/refused-" + std::to_string(getpid())) << what << ": " << text;
}

__attribute__((constructor(102))) void prepare() {
  if (std::getenv("DAGC_RECORD_TO") == nullptr) return;
  device({[] {
            driver().wait();
          },
          [](void* to, const void* from, std::size_t bytes) {
            const auto read = driver().cuMemcpyDtoH_;
            const bool failed =
                read == nullptr || read(to, reinterpret_cast<CUdeviceptr>(from), bytes) != CUDA_SUCCESS;
            if (failed) std::memcpy(to, from, bytes);  // of the host
          },
          [](void* to, const void* from, std::size_t bytes) {
            const auto write = driver().cuMemcpyHtoD_;
            const bool failed =
                write == nullptr || write(reinterpret_cast<CUdeviceptr>(to), from, bytes) != CUDA_SUCCESS;
            if (failed) std::memcpy(to, from, bytes);
          },
          [](std::size_t bytes) {
            CUdeviceptr memory = 0;
            const bool good = driver().cuMemAlloc_ != nullptr && driver().cuMemAlloc_(&memory, bytes) == CUDA_SUCCESS;
            return good ? reinterpret_cast<void*>(memory) : nullptr;
          },
          frames, [] { return driver().gpu(); }});
}

}  // namespace
}  // namespace dagc::record

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using dagc::record::check;
  const char* folder = std::getenv("DAGC_RECORD_TO");
  if (folder == nullptr) return 1;
  static CUpti_SubscriberHandle subscriber;
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 1) > 0)
    std::ofstream(std::string(folder) + "/program-" + std::to_string(getpid())) << path;
  check(cuptiSubscribe(&subscriber, dagc::record::called, nullptr), "cuptiSubscribe");
  check(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API), "cuptiEnableDomain");
  for (const CUpti_CallbackId id :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz})
    check(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
  return 1;
}
