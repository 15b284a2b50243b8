// A rank that a signal terminates, or that calls `exit` in an op, first reports which one, and in which op:
//
//   dagc: rank 1: terminated by SIGSEGV (a bad address) in op `scale` (kernel `scale`)
//   dagc: rank 0: ended with exit code 3 in op `scale` (kernel `scale`)
//
// mpiexec reports the rank whose end it notices first, which may be one that it ended itself, or none at all. On a GPU
// a bad address is not a signal, but an error of a later call.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <ctime>

#include <sys/mman.h>
#include <unistd.h>

#include "guard_pages.hpp"
#ifdef DAGC_NVTX
#include <nvtx3/nvToolsExt.h>  // headers alone: it loads the library of the profiler that runs the process
#endif

// Private to each library: a process may load several, whose handlers are chained.
#define DAGC_PRIVATE __attribute__((visibility("hidden")))

namespace dagc {

struct Fault {
  int signal;
  const char* name;
};

inline constexpr Fault faults[] = {
    {SIGSEGV, "SIGSEGV (a bad address)"},
    {SIGBUS, "SIGBUS (a bad address, or a file that was cut)"},
    {SIGFPE, "SIGFPE (a division by zero of integers)"},
    {SIGILL, "SIGILL (an instruction that this processor lacks)"},
    {SIGABRT, "SIGABRT (abort was called)"},
};
inline constexpr std::size_t fault_count = sizeof faults / sizeof *faults;

DAGC_PRIVATE inline int fault_rank = 0;
DAGC_PRIVATE inline char fault_head[48] = "";
DAGC_PRIVATE inline struct sigaction fault_before[fault_count] = {};  // previous handlers
DAGC_PRIVATE inline bool faults_named = false;

// The op that this thread issues, runs or waits for, as text; null: none. Storing a constant costs nothing measurable.
// A signal handler, and another thread (watchdog.hpp), may read it.
DAGC_PRIVATE inline thread_local std::atomic<const char*> op_under_way{nullptr};

inline void begin_op(const char* text) {
#ifdef DAGC_NVTX  // each is a range, which ends where the next begins
  if (op_under_way.load(std::memory_order_relaxed) != nullptr) nvtxRangePop();
  if (text != nullptr) nvtxRangePushA(text);
#endif
  op_under_way.store(text, std::memory_order_relaxed);
}
inline void end_op() { begin_op(nullptr); }

// Names a part of the program other than an op, also within an op.
class UnderWay {
 public:
  explicit UnderWay(const char* text) : outer_(op_under_way.load(std::memory_order_relaxed)) { begin_op(text); }
  ~UnderWay() { begin_op(outer_); }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  const char* const outer_;
};

// A stack for the handlers of this thread, unless it has one: its own may be what overflowed. Kept until the process
// ends.
inline void make_signal_stack() {
  constexpr std::size_t bytes = 64 * 1024;
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack = {};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

// Calls nothing that a signal handler may not call, where the signal comes from an access to memory.
DAGC_PRIVATE inline void say_fault(int signal, siginfo_t* info, void*) {
  char line[512];
  std::size_t length = 0;
  const auto add = [&](const char* text) {
    for (; *text && length < sizeof line - 1; ++text) line[length++] = *text;  // one byte is left for the line's end
  };
  const struct sigaction* before = nullptr;
  add(fault_head);
  for (std::size_t i = 0; i < fault_count; ++i) {
    if (faults[i].signal != signal) continue;
    add(faults[i].name);
    before = &fault_before[i];
  }
  if (const char* const op = op_under_way.load(std::memory_order_relaxed)) {
    add(" in ");
    add(op);
  }
  if (signal == SIGSEGV && info->si_code > 0) {
    char element[200];
    GuardedMemory::get().locate(info->si_addr, element, sizeof element);
    add(element);
  }
  line[length++] = '\n';
  const ssize_t written = write(STDERR_FILENO, line, length);  // whole: the ranks share what they write to
  // mpiexec reads output and exit codes of ranks from different sources (check.hpp).
  const timespec moment{0, 100 * 1000 * 1000};
  if (written > 0) nanosleep(&moment, nullptr);
  // Pass it to the previous handler. A signal caused by an instruction comes again when that is executed again, with its
  // address; one that was sent (abort, raise, kill) must be sent again.
  sigaction(signal, before, nullptr);
  if (info->si_code <= 0) std::raise(signal);
}

#ifdef __GLIBC__
// `exit` calls destructors, and on the host target these wait for the streams: in the thread of a stream, forever. So the
// process ends here. Never with 0, since the starter would then let the other ranks wait.
inline void say_exit(int code, void*) {
  const char* const op = op_under_way.load(std::memory_order_relaxed);
  if (op == nullptr) return;
  char line[512];
  const int written = std::snprintf(line, sizeof line, "dagc: rank %d: ended with exit code %d in %s\n", fault_rank, code, op);
  const std::size_t length = static_cast<std::size_t>(written) < sizeof line ? static_cast<std::size_t>(written) : sizeof line - 1;
  std::fflush(stdout);
  const timespec moment{0, 100 * 1000 * 1000};
  if (write(STDERR_FILENO, line, length) > 0) nanosleep(&moment, nullptr);
  _exit(code != 0 ? code : 5);  // exit_run_failed
}
#endif

// Installs the handlers for the whole process. Ignored signals stay ignored; other handlers run after this one.
inline void name_faults(int rank) {
  if (faults_named) return;
  faults_named = true;
  fault_rank = rank;
#ifdef __GLIBC__
  on_exit(say_exit, nullptr);
#endif
  std::snprintf(fault_head, sizeof fault_head, "dagc: rank %d: terminated by ", rank);
  make_signal_stack();
  end_op();
  for (std::size_t i = 0; i < fault_count; ++i) {
    struct sigaction mine = {};
    sigaction(faults[i].signal, nullptr, &fault_before[i]);
    if ((fault_before[i].sa_flags & SA_SIGINFO) == 0 && fault_before[i].sa_handler == SIG_IGN) continue;
    mine.sa_sigaction = say_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(faults[i].signal, &mine, nullptr);
  }
}

}  // namespace dagc
