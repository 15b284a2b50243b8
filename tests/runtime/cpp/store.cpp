// store MIB   makes two arrays of so many MiB where there is memory for one, and frees the first for the second
#include "dagc/store.hpp"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

int main(int, char** argv) {
  using dagc::Place;
  using dagc::Role;
  const std::int64_t bytes = std::atoll(argv[1]) << 20;
  dagc::Store store;
  dagc::Array<float> kept, first, second;
  store.make(kept, "kept", {100}, Place::device, Role::scratch);
  store.make(first, "first", {bytes / 4}, Place::device, Role::prepared);
  store.make_room = [&] {
    std::printf("asked\n");
    if (first.data == nullptr) return false;
    store.drop(first);
    return true;
  };
  DAGC_CUDA(cudaDeviceSynchronize());
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit most{static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes / 2), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &most);
  store.make(second, "second", {bytes / 4}, Place::device, Role::prepared);
  store.reset(1);
  const std::vector<std::string> over = store.overrun();
  std::printf("%zu overrun, first %s\n", over.size(), first.data == nullptr ? "freed" : "there");
  std::fflush(stdout);
  store.make(first, "first", {bytes / 4}, Place::device, Role::prepared);
}
