// A rank that is ended by a signal says which one first: "dagc: rank R: ended by SIGSEGV (a bad address)". Starters say
// it of whichever rank they find ended first, which may be one that they have ended themselves, or not at all.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <ctime>

#include <unistd.h>

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

inline char fault_head[48] = "";

// Calls nothing that a signal handler may not call.
inline void say_fault(int signal) {
  char line[128];
  std::size_t length = 0;
  const auto add = [&](const char* text) {
    for (; *text && length < sizeof line; ++text) line[length++] = *text;
  };
  add(fault_head);
  for (const Fault& fault : faults)
    if (fault.signal == signal) add(fault.name);
  add("\n");
  const ssize_t written = write(STDERR_FILENO, line, length);  // whole: the ranks share what they write to
  // The starter reads what the ranks say and how they end from different places (check.hpp).
  const timespec moment{0, 100 * 1000 * 1000};
  if (written > 0) nanosleep(&moment, nullptr);
  std::raise(signal);  // SA_RESETHAND: the default, once this returns
}

// From now on, in the whole process. A signal that is handled or ignored already stays so.
inline void name_faults(int rank) {
  std::snprintf(fault_head, sizeof fault_head, "dagc: rank %d: ended by ", rank);
  for (const Fault& fault : faults) {
    struct sigaction before = {}, mine = {};
    sigaction(fault.signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    mine.sa_handler = say_fault;
    mine.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(fault.signal, &mine, nullptr);
  }
}

}  // namespace dagc
