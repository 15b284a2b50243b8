// Sockets: parts of the cores of a rank, on which an op may run instead of on all of them.
//
//   dagc::Sockets sockets{2};
//   sockets.find(dagc::share_cores(comm), 0);
//   sockets.use(2);                              // OpenMP uses the second one; 0: all cores
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "dagc/message.hpp"
#include "dagc/openmp.hpp"

namespace dagc {

// The package of a core; 0 where the system does not say.
inline int package_of(int core) {
  const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/physical_package_id";
  int package = 0;
  if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
    if (std::fscanf(file, "%d", &package) != 1) package = 0;
    std::fclose(file);
  }
  return package;
}

// The cores in `parts` groups: by packages, if these are so many, else in equal parts, by package and number. None if there
// are fewer cores.
inline std::vector<std::vector<int>> sockets_of(std::vector<int> cores, int parts, int (*package)(int) = package_of) {
  const std::size_t number = static_cast<std::size_t>(parts);
  if (cores.size() < number) return {};
  std::map<int, std::vector<int>> of;
  for (const int core : cores) of[package(core)].push_back(core);
  std::vector<std::vector<int>> out;
  for (auto& [id, members] : of) out.push_back(members);
  if (out.size() == number) return out;
  std::vector<int> every;
  for (const auto& members : out) every.insert(every.end(), members.begin(), members.end());
  out.clear();
  for (std::size_t part = 0; part < number; ++part) {
    const auto begin = [&](std::size_t p) { return every.begin() + static_cast<std::ptrdiff_t>(p * every.size() / number); };
    out.emplace_back(begin(part), begin(part + 1));
  }
  return out;
}

class Sockets {
 public:
  explicit Sockets(int number) : number_(number) {}
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() { use(0); }  // the next program of the process finds all cores

  // `bound`: the cores to which the threads of OpenMP are bound; none if the user did that, and they stay as they are. Ends the
  // program if the rank has too few cores, and `needed` of the sockets run ops that run nowhere else.
  void find(const std::vector<int>& bound, int needed) {
    CPU_ZERO(&own_);
    if (sched_getaffinity(0, sizeof own_, &own_) != 0) CPU_SET(0, &own_);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &own_)) all_.push_back(core);
    binds_ = !bound.empty();
    if (binds_) all_ = bound;
    threads_ = static_cast<std::size_t>(omp_get_max_threads());
    parts_ = sockets_of(all_, number_);
    if (needed > static_cast<int>(parts_.size()))
      fail(exit_missing, "this rank has " + std::to_string(all_.size()) + " cores, too few for " + std::to_string(number_) +
                             " sockets; start fewer ranks on a host, or declare fewer in `devices`");
  }
  bool has(int part) const { return static_cast<std::size_t>(part) <= parts_.size(); }

  // The threads of OpenMP are as many as the cores of this socket, the first being 1, and on these; 0: all of them.
  void use(int part) {
    if (part == now_) return;
    now_ = part;
    const std::vector<int>& cores = part == 0 ? all_ : parts_[static_cast<std::size_t>(part - 1)];
    omp_set_num_threads(std::max(1, static_cast<int>(threads_ * cores.size() / all_.size())));
    if (!binds_) return;
    cpu_set_t mine = own_;
    if (part != 0) {
      CPU_ZERO(&mine);
      for (const int core : cores) CPU_SET(core, &mine);
    }
    bind_threads(cores, mine);
  }

 private:
  int number_, now_ = 0;
  std::size_t threads_ = 1;
  bool binds_ = false;
  cpu_set_t own_ = {};
  std::vector<int> all_;                 // cores of OpenMP's threads
  std::vector<std::vector<int>> parts_;  // of them
};

}  // namespace dagc
