// What kernels touch. The compiler calls a function of this file at each access (-fsanitize=thread; its library is not
// linked): during a launch that is watched, these mark the bytes of arrays. They call nothing that is instrumented.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "log.hpp"

#define DAGC_PLAIN __attribute__((no_sanitize("thread")))

namespace dagc::record {
namespace {

constexpr std::size_t kPieces = 4;  // of what a launch reads, or writes, of an array: the rest of the gaps count as touched

struct Marks {
  std::uintptr_t begin, bytes;
  unsigned char *read, *written;  // a bit for each byte
  Marks* next;
};
thread_local Marks* watched = nullptr;

DAGC_PLAIN void mark(const volatile void* memory, std::size_t bytes, bool reads, bool writes) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(memory);
  for (Marks* m = watched; m != nullptr; m = m->next) {
    const std::uintptr_t at = address - m->begin;
    if (at >= m->bytes) continue;
    const std::uintptr_t end = at + bytes < m->bytes ? at + bytes : m->bytes;
    for (std::uintptr_t i = at; i < end;) {
      const bool whole = (i & 7) == 0 && i + 8 <= end;
      const unsigned char bits = whole ? 255 : static_cast<unsigned char>(1u << (i & 7));
      if (reads) m->read[i >> 3] |= bits;
      if (writes) m->written[i >> 3] |= bits;
      i += whole ? 8 : 1;
    }
    return;
  }
}

// Begins and ends of the marked pieces, one after the other; the smallest gaps between them are left out, not `exact`.
std::string pieces(const unsigned char* bits, std::size_t bytes, bool& exact) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (bits[i >> 3] == 0) {
      i |= 7;
    } else if (bits[i >> 3] >> (i & 7) & 1) {
      if (found.empty() || found.back().second != i) found.emplace_back(i, i);
      found.back().second = i + 1;
    }
  }
  std::vector<std::size_t> gaps;
  for (std::size_t i = 1; i < found.size(); ++i) gaps.push_back(found[i].first - found[i - 1].second);
  std::sort(gaps.rbegin(), gaps.rend());
  exact = exact && gaps.size() < kPieces;
  const std::size_t least = gaps.size() < kPieces ? 0 : gaps[kPieces - 1] + 1;
  std::string out;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i == 0 || found[i].first - found[i - 1].second >= least) {
      if (i != 0) out += std::to_string(found[i - 1].second) + ", ";
      out += std::to_string(found[i].first) + ", ";
    }
  }
  return found.empty() ? "[]" : "[" + out + std::to_string(found.back().second) + "]";
}

}  // namespace

void Watch::begin() const {
  for (const Array& array : arrays) {
    const auto bits = [&] { return static_cast<unsigned char*>(std::calloc(array.bytes / 8 + 1, 1)); };
    watched = new Marks{reinterpret_cast<std::uintptr_t>(array.memory), array.bytes, bits(), bits(), watched};
  }
}

void Watch::end() const {
  Marks* m = std::exchange(watched, nullptr);
  for (auto array = arrays.rbegin(); array != arrays.rend(); ++array) {
    bool exact = true;
    const std::string reads = pieces(m->read, m->bytes, exact), writes = pieces(m->written, m->bytes, exact);
    touched(launch, array->event, reads, writes, exact);
    std::free(m->read);
    std::free(m->written);
    delete std::exchange(m, m->next);
  }
}

}  // namespace dagc::record

using dagc::record::mark;

extern "C" {

DAGC_PLAIN void __tsan_init() {}
DAGC_PLAIN void __tsan_func_entry(void*) {}
DAGC_PLAIN void __tsan_func_exit() {}
DAGC_PLAIN void __tsan_vptr_update(void**, void*) {}
DAGC_PLAIN void __tsan_vptr_read(void**) {}
DAGC_PLAIN void __tsan_read_range(void* at, unsigned long bytes) { mark(at, bytes, true, false); }
DAGC_PLAIN void __tsan_write_range(void* at, unsigned long bytes) { mark(at, bytes, false, true); }
DAGC_PLAIN void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
DAGC_PLAIN void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#define DAGC_ACCESS(bytes)                                                                    \
  DAGC_PLAIN void __tsan_read##bytes(void* at) { mark(at, bytes, true, false); }              \
  DAGC_PLAIN void __tsan_write##bytes(void* at) { mark(at, bytes, false, true); }             \
  DAGC_PLAIN void __tsan_unaligned_read##bytes(void* at) { mark(at, bytes, true, false); }    \
  DAGC_PLAIN void __tsan_unaligned_write##bytes(void* at) { mark(at, bytes, false, true); }
DAGC_ACCESS(1)
DAGC_ACCESS(2)
DAGC_ACCESS(4)
DAGC_ACCESS(8)
DAGC_ACCESS(16)

#define DAGC_CHANGE(bits, name, builtin)                                            \
  DAGC_PLAIN Atomic##bits __tsan_atomic##bits##_##name(volatile Atomic##bits* at, Atomic##bits value, int) { \
    mark(at, sizeof value, true, true);                                             \
    return builtin(at, value, __ATOMIC_SEQ_CST);                                    \
  }
#define DAGC_EXCHANGE(bits, name)                                                                            \
  DAGC_PLAIN int __tsan_atomic##bits##_compare_exchange_##name(volatile Atomic##bits* at, Atomic##bits* old, \
                                                               Atomic##bits value, int, int) {               \
    mark(at, sizeof value, true, true);                                                                      \
    return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
  }
#define DAGC_ATOMIC(bits)                                                                            \
  using Atomic##bits = std::uint##bits##_t;                                                          \
  DAGC_PLAIN Atomic##bits __tsan_atomic##bits##_load(const volatile Atomic##bits* at, int) {         \
    mark(at, sizeof *at, true, false);                                                               \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                  \
  DAGC_PLAIN void __tsan_atomic##bits##_store(volatile Atomic##bits* at, Atomic##bits value, int) {  \
    mark(at, sizeof value, false, true);                                                             \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                  \
  DAGC_CHANGE(bits, exchange, __atomic_exchange_n)                                                   \
  DAGC_CHANGE(bits, fetch_add, __atomic_fetch_add)                                                   \
  DAGC_CHANGE(bits, fetch_sub, __atomic_fetch_sub)                                                   \
  DAGC_CHANGE(bits, fetch_and, __atomic_fetch_and)                                                   \
  DAGC_CHANGE(bits, fetch_or, __atomic_fetch_or)                                                     \
  DAGC_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                                                   \
  DAGC_CHANGE(bits, fetch_nand, __atomic_fetch_nand)                                                 \
  DAGC_EXCHANGE(bits, strong)                                                                        \
  DAGC_EXCHANGE(bits, weak)
DAGC_ATOMIC(8)
DAGC_ATOMIC(16)
DAGC_ATOMIC(32)
DAGC_ATOMIC(64)

// Of whole objects, which the compiler leaves to the C library (-Wl,--wrap).
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
DAGC_PLAIN void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  mark(from, bytes, true, false);
  mark(to, bytes, false, true);
  return __real_memcpy(to, from, bytes);
}
DAGC_PLAIN void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  mark(from, bytes, true, false);
  mark(to, bytes, false, true);
  return __real_memmove(to, from, bytes);
}
DAGC_PLAIN void* __wrap_memset(void* to, int value, std::size_t bytes) {
  mark(to, bytes, false, true);
  return __real_memset(to, value, bytes);
}

}  // extern "C"
