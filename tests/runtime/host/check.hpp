// The tests' own words: EXPECT, and a list of named cases that main() runs by name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: expected: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (false)
#define GOOD(call) EXPECT((call) == cudaSuccess)

struct Case {
  const char* name;
  void (*run)();
};

// Without an argument: the names, one a line. With one: that case, or `all` of them.
template <int N>
int run_cases(const Case (&cases)[N], int count, char** arguments) {
  bool found = false;
  for (const Case& one : cases) {
    if (count < 2) std::printf("%s\n", one.name);
    if (count == 2 && (std::strcmp(arguments[1], one.name) == 0 || std::strcmp(arguments[1], "all") == 0)) {
      found = true;
      one.run();
    }
  }
  return count < 2 || found ? 0 : 2;
}
