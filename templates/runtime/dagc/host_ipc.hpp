// Host target: memory of other processes (CUDA IPC). An allocation becomes pages of a file, which others map.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guard_pages.hpp"
#include "host_runtime.hpp"

struct cudaIpcMemHandle_t {
  char reserved[64];
};
constexpr unsigned int cudaIpcMemLazyEnablePeerAccess = 1;

namespace dagc::host {

// Before any allocation of the process.
inline const bool memory_is_shared = (GuardedMemory::get().always(), true);

struct IpcMemory {
  int process;
  GuardedMemory::File file;
};

// What this process has mapped: beginning of the pages, and bytes, by the address of the memory.
class IpcMappings {
 public:
  static IpcMappings& get() {
    static IpcMappings& all = *new IpcMappings;
    return all;
  }
  void* open(const IpcMemory& memory) {
    const std::string path = "/proc/" + std::to_string(memory.process) + "/fd/" + std::to_string(memory.file.descriptor);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* const pages = mmap(nullptr, memory.file.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (pages == MAP_FAILED) return nullptr;
    char* const data = static_cast<char*>(pages) + memory.file.data;
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[data] = {pages, memory.file.bytes};
    return data;
  }
  bool close(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = bytes_.find(data);
    if (at == bytes_.end()) return false;
    munmap(at->second.first, at->second.second);
    bytes_.erase(at);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::pair<void*, std::size_t>> bytes_;
};

}  // namespace dagc::host

inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  const dagc::host::IpcMemory found{getpid(), dagc::GuardedMemory::get().share(memory)};
  static_assert(sizeof found <= sizeof *handle);
  *handle = {};
  std::memcpy(handle, &found, sizeof found);
  return dagc::host::remember(found.file.descriptor < 0 ? cudaErrorInvalidValue : cudaSuccess);
}
// DAGC_HOST_IPC=refused: as between GPUs that do not reach each other, or in a container that does not allow it.
inline cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned int) {
  const char* const given = std::getenv("DAGC_HOST_IPC");
  if (given != nullptr && std::strcmp(given, "refused") == 0) return dagc::host::remember(cudaErrorInvalidValue);
  dagc::host::IpcMemory found;
  std::memcpy(&found, &handle, sizeof found);
  *memory = dagc::host::IpcMappings::get().open(found);
  return dagc::host::remember(*memory == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
inline cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return dagc::host::remember(dagc::host::IpcMappings::get().close(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
