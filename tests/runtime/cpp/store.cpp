// store MIB      makes two arrays of so many MiB where there is memory for one, and frees the first for the second
// store FOLDER   compares results with FOLDER/y.npy (10 and three 0), again when the file is gone, and others
#include "dagc/store.hpp"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {

using dagc::Place;
using dagc::Role;

int compare(const char* folder) {
  dagc::Store store(folder);
  dagc::Array<std::int32_t> y;
  store.make(y, "y", {4}, Place::device, Role::out);
  // Elements beyond `written` keep the poison of the reset.
  const auto compared = [&](int poison, int written, std::int32_t last, double rtol) {
    store.reset(poison);
    const std::int32_t values[] = {10, 0, 0, last};
    for (int i = 0; i < written; ++i) y.data[i] = values[i];
    std::printf("%s\n", store.compare(y, "y", "y.npy", 0, 4, {rtol, false}).c_str());
  };
  constexpr std::int32_t like_poison = 0x5a5a5a5a;
  compared(0, 4, 0, 0);            // right
  compared(0, 4, 1, 0);            // wrong
  compared(0, 4, like_poison, 1e300);
  compared(1, 4, like_poison, 1e300);  // right, and equal to what the next one leaves
  compared(0, 3, 0, 1e300);
  compared(1, 3, 0, 1e300);        // never written
  std::remove(store.path("y.npy").c_str());
  compared(0, 4, 0, 0);            // as the first: the file is not read
  std::fflush(stdout);
  compared(0, 4, 1, 0);            // fails: it is gone
  return 0;
}

}  // namespace

int main(int, char** argv) {
  if (std::atoll(argv[1]) == 0) return compare(argv[1]);
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
