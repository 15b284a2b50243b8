// Host target: stacks to switch between, for threads of a block that wait for each other.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#if !defined(__x86_64__) || defined(DAGC_HOST_UCONTEXT)
#include <ucontext.h>
#define DAGC_HOST_SWITCH 0
#else
#define DAGC_HOST_SWITCH 1
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define DAGC_ASAN 1
#else
#define DAGC_ASAN 0
#endif

namespace dagc::host {

// A kernel that cannot continue: one line, then the process ends with code 5, as for a failed call.
[[noreturn]] inline void fatal(const char* message) {
  std::fflush(stdout);
  std::fprintf(stderr, "dagc: %s\n", message);
  std::_Exit(5);
}

#if DAGC_HOST_SWITCH
// Saves the callee-saved registers on this stack, its pointer in *save, and continues where `load` was saved.
// (swapcontext would need two system calls per switch.)
__attribute__((naked, noinline, no_sanitize("thread", "address", "undefined"))) inline void switch_stack(
    void** /*save*/, void* /*load*/) {
  __asm__(
      "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}
#endif

// A stack with its suspended execution. A default-constructed one is the original stack of its thread.
//
// The switches are not announced to ThreadSanitizer: that would take 0.9 MB and 2 ms for each fiber, too much for a block of 1024
// threads on each of several streams. It sees all fibers of a stream as one thread (which they are),
// whose call stack is deeper than it looks; a report's first line is right, the callers under it may be those of a
// sibling.
class Fiber {
 public:
  Fiber() = default;
  // `entry` runs on the new stack when it is first switched to, and must not return. `value`: what `on_stack` finds.
  template <class T>
  Fiber(void (*entry)(), const T& value) : entry_(entry) {
    static_assert(sizeof(T) <= kValue);
    char* const memory = map_aligned();
    if (memory == nullptr || mprotect(memory, kGuard, PROT_NONE) != 0)
      fatal("no memory for the stacks of a block's threads");
    bottom_ = memory + kGuard;
    bytes_ = kBytes - kGuard;
    char* const place = value_of(reinterpret_cast<std::uintptr_t>(bottom_));
    new (place) T(value);
    prepare(place);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The value of the fiber that runs, by its stack pointer: no thread-local variable, which would cost a call in a shared
  // library. The result is the same in all of a function, so the instruction may be moved.
  template <class T>
  __attribute__((always_inline)) static T& on_stack() {
#if defined(__x86_64__)
    std::uintptr_t pointer;
    __asm__("movq %%rsp, %0" : "=r"(pointer));
#else
    const auto pointer = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
    return *reinterpret_cast<T*>(value_of(pointer));
  }

  // Suspends the running fiber, which is `from`, and continues where `to` was suspended.
  static void change(Fiber& from, Fiber& to) {
#if DAGC_ASAN
    current() = &to;
    previous() = &from;
    void* shadow = nullptr;
    __sanitizer_start_switch_fiber(&shadow, to.bottom_, to.bytes_);
#endif
#if DAGC_HOST_SWITCH
    switch_stack(&from.pointer_, to.pointer_);
#else
    swapcontext(&from.context_, &to.context_);
#endif
#if DAGC_ASAN
    arrived(shadow);
#endif
  }

 private:
  // A stack begins at a multiple of its size. CUDA gives a thread up to 512 KiB of local memory; pages that are not
  // touched take no memory.
  static constexpr std::size_t kBytes = 1024 * 1024, kGuard = 64 * 1024, kValue = 64;

  // Below the top of the stack that has an address: by 0 to 63 times a page and 5 lines, else all stacks would map to
  // the same sets of the caches and of the TLB.
  static char* value_of(std::uintptr_t address) {
    return reinterpret_cast<char*>((address | (kBytes - 1)) - (address / kBytes % 64) * (4096 + 5 * 64) - (kValue - 1));
  }

  // Null if there is no memory. Mappings follow one another, so that the first is aligned but for the first time.
  static char* map_aligned() {
    constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kKind, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    if (reinterpret_cast<std::uintptr_t>(memory) % kBytes == 0) return static_cast<char*>(memory);
    munmap(memory, kBytes);
    memory = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, kKind, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* const begin = static_cast<char*>(memory);
    const std::size_t before = (kBytes - reinterpret_cast<std::uintptr_t>(memory) % kBytes) % kBytes;
    if (before != 0) munmap(begin, before);
    munmap(begin + before + kBytes, kBytes - before);
    return begin + before;
  }

#if DAGC_HOST_SWITCH
  void prepare(char* top) {
    auto** slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;  // the return address (unused: the entry never returns), and the alignment of a call
    *--slot = reinterpret_cast<void*>(entry_point());
    for (int i = 0; i < 6; ++i) *--slot = nullptr;
    pointer_ = slot;
  }
  void* pointer_ = nullptr;
#else
  void prepare(char* top) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = bottom_;
    context_.uc_stack.ss_size = static_cast<std::size_t>(top - bottom_);
    context_.uc_link = nullptr;
    makecontext(&context_, entry_point(), 0);
  }
  ucontext_t context_{};
#endif

#if DAGC_ASAN
  static Fiber*& current() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  static Fiber*& previous() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  // AddressSanitizer reports the bounds of the stack that was left; this gives a thread's own stack.
  static void arrived(void* shadow) {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(shadow, &bottom, &bytes);
    Fiber& left = *previous();
    left.bottom_ = static_cast<char*>(const_cast<void*>(bottom));
    left.bytes_ = bytes;
  }
  static void start() {
    arrived(nullptr);
    current()->entry_();
  }
  void (*entry_point())() { return start; }
#else
  void (*entry_point())() { return entry_; }
#endif

  void (*entry_)() = nullptr;
  char* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace dagc::host
