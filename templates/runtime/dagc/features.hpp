// Numbers that are computed from the arrays of a program on threads: each on one of its own, or all on one beside the program.
#pragma once

#include <functional>
#include <future>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

class AtOnce {
 public:
  // Starts all of them, on the caller's GPU. They must not call MPI.
  void start(const std::vector<std::function<void()>>& work) {
    int device = 0;
    DAGC_CUDA(cudaGetDevice(&device));
    for (const auto& one : work)
      running_.push_back(std::async(std::launch::async, [one, device] {
        DAGC_CUDA(cudaSetDevice(device));
        one();
      }));
  }

  bool running() const { return !running_.empty(); }

  // Waits for all. In a library, what one of them throws is thrown here.
  void finish() {
    std::vector<std::future<void>> ended;
    ended.swap(running_);
    for (auto& one : ended) one.get();
  }

 private:
  std::vector<std::future<void>> running_;  // whose destructors wait
};

}  // namespace dagc
