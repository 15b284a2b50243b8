// Host target: which memory is page-locked. Copies of other memory block the thread that issues them, as in CUDA.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

namespace dagc::host {

class PageLocked {
 public:
  static PageLocked& get() {
    static PageLocked& all = *new PageLocked;  // memory may be freed when the process ends
    return all;
  }

  void add(const void* begin, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[static_cast<const char*>(begin)] = bytes;
  }
  void remove(const void* begin) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(static_cast<const char*>(begin));
  }
  bool has(const void* memory) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* const at = static_cast<const char*>(memory);
    const auto next = blocks_.upper_bound(at);
    return next != blocks_.begin() && at < std::prev(next)->first + std::prev(next)->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, std::size_t> blocks_;  // by where they begin
};

}  // namespace dagc::host
