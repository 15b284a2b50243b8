// Memory between pages that cannot be accessed (guard pages), so that an access beyond an array ends the program in the op
// that does it, and does not change what belongs to others. Of arrays on the host; on the host target of all arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace dagc {

// Address and thread sanitizers watch the memory of malloc themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool guard_pages = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool guard_pages = false;
#else
inline constexpr bool guard_pages = true;
#endif
#else
inline constexpr bool guard_pages = true;
#endif

class GuardedMemory {
 public:
  static GuardedMemory& get() {
    static GuardedMemory& all = *new GuardedMemory;  // memory may be freed when the process ends
    return all;
  }

  // `bytes` bytes at a multiple of `alignment`, a power of two, whose end is as near to the guard as that permits. Null if
  // there is no memory.
  void* allocate(std::size_t bytes, std::size_t alignment) {
    if (bytes > SIZE_MAX / 2) return nullptr;
    const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t open = (room + page - 1) / page * page;
    const std::lock_guard<std::mutex> lock(mutex_);
    // The system limits the number of mappings. Beyond the limit, memory has no guards.
    if (!(guard_pages || always_) || blocks_.size() >= most) return without_guards(alignment, room);
    void* const mapping = mmap(nullptr, open + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return without_guards(alignment, room);
    char* const first = static_cast<char*>(mapping) + guard;
    if (mprotect(first, open, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapping, open + 2 * guard);
      return nullptr;
    }
    char* const data = first + (open - room);
    std::memset(first, front, open - room);
    blocks_[first - guard] = {data, open, bytes, 1, "", -1};
    return data;
  }

  void release(void* memory) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto at = block_of(static_cast<const char*>(memory));
      if (at != blocks_.end() && at->second.data == memory) {
        if (at->second.file >= 0) close(at->second.file);
        munmap(const_cast<char*>(at->first), at->second.open + 2 * guard);
        blocks_.erase(at);
        return;
      }
      plain_.erase(memory);
    }
    std::free(memory);
  }

  // Whether this memory was allocated here, and not released since.
  bool has(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = block_of(static_cast<const char*>(memory));
    return (at != blocks_.end() && at->second.data == memory) || plain_.count(memory) != 0;
  }

  // From now on memory has guards, and can be shared, under sanitizers too.
  void always() { always_ = true; }

  // Pages of a file. `data`: where in it the memory begins.
  struct File {
    int descriptor;
    std::size_t bytes, data;
  };

  // The file of this memory, which other processes can map. It has one from the first call on, in which nothing else may
  // use the memory. `descriptor` is negative if that fails.
  File share(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = block_of(static_cast<const char*>(memory));
    if (at == blocks_.end()) return {-1, 0, 0};
    Block& b = at->second;
    char* const first = const_cast<char*>(at->first) + guard;
    if (b.file < 0) {
      const int file = memfd_create("dagc", MFD_CLOEXEC);
      std::size_t done = 0;
      while (file >= 0 && done < b.open) {
        const ssize_t n = write(file, first + done, b.open - done);
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
      }
      const bool filled = file >= 0 && done == b.open;
      if (!filled || mmap(first, b.open, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        if (file >= 0) close(file);
        return {-1, 0, 0};
      }
      b.file = file;
    }
    return {b.file, b.open, static_cast<std::size_t>(static_cast<const char*>(memory) - first)};
  }

  // Declares the content of this memory: an array of `bytes` bytes, of elements of `width` bytes.
  void name(const void* memory, std::size_t bytes, std::size_t width, const std::string& array) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = block_of(static_cast<const char*>(memory));
    if (at == blocks_.end() || at->second.data != memory) return;
    at->second.bytes = bytes, at->second.width = width, at->second.name = array;
  }

  // The distance in bytes from the beginning of this memory back to the first byte before it that was written, 0 if
  // none was; restores these bytes.
  std::size_t written_before(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = block_of(static_cast<const char*>(memory));
    if (at == blocks_.end() || at->second.data != memory) return 0;
    char* const first = const_cast<char*>(at->first) + guard;
    const char* const data = at->second.data;
    const char* changed = first;
    while (changed < data && static_cast<unsigned char>(*changed) == front) ++changed;
    std::memset(first, front, static_cast<std::size_t>(data - first));
    return static_cast<std::size_t>(data - changed);
  }

  // For a signal handler: writes ": element 150 of `y`, which has 100" to `text` if the address is in a guard, else "".
  void locate(const void* address, char* text, std::size_t room) {
    *text = '\0';
    if (!mutex_.try_lock()) return;
    const auto at = block_of(static_cast<const char*>(address));
    if (at != blocks_.end()) {
      const Block& b = at->second;
      const long long offset = static_cast<const char*>(address) - b.data, width = static_cast<long long>(b.width);
      const long long element = offset < 0 ? -((width - 1 - offset) / width) : offset / width;
      const bool named = !b.name.empty();
      std::snprintf(text, room, named ? ": element %lld of `%s`, which has %lld" : ": byte %lld of memory%s of %lld bytes", element,
                    b.name.c_str(), static_cast<long long>(b.bytes / b.width));
    }
    mutex_.unlock();
  }

 private:
  struct Block {
    char* data;
    std::size_t open;          // bytes of the pages between the guards
    std::size_t bytes, width;  // of the array, of an element
    std::string name;
    int file;  // negative: none
  };
  using Blocks = std::map<const char*, Block>;  // by the beginning of the guard before

  static constexpr std::size_t guard = std::size_t{1} << 20;  // bytes of addresses, not of memory
  static constexpr std::size_t most = 8192;                   // three mappings each, of the 65530 of a process
  static constexpr unsigned char front = 0xa5;

  void* without_guards(std::size_t alignment, std::size_t room) {
    void* const memory = std::aligned_alloc(alignment, room);
    if (memory != nullptr) plain_.insert(memory);
    return memory;
  }

  Blocks::iterator block_of(const char* address) {
    const auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return blocks_.end();
    const auto at = std::prev(next);
    return address < at->first + at->second.open + 2 * guard ? at : blocks_.end();
  }

  std::mutex mutex_;
  Blocks blocks_;
  std::set<const void*> plain_;
  bool always_ = false;
};

}  // namespace dagc
