// Streams with a part of messages have a higher priority than others: what messages wait for begins first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

class Priorities {
 public:
  Priorities() = default;
  Priorities(const Priorities&) = delete;
  Priorities& operator=(const Priorities&) = delete;
  ~Priorities() {
    for (cudaStream_t one : other_)
      if (one != nullptr) cudaStreamDestroy(one);
  }

  // Exchanges streams for others of the priority that they must have: `sends` says which have a part of messages. If all
  // have, or none, none is preferred.
  void prefer(std::vector<cudaStream_t>* streams, const std::vector<bool>& sends) {
    const bool some = std::find(sends.begin(), sends.end(), true) != sends.end();
    const bool differ = some && std::find(sends.begin(), sends.end(), false) != sends.end();
    other_.resize(streams->size());
    preferred_.resize(streams->size());
    for (std::size_t k = 0; k < streams->size(); ++k) {
      const bool wanted = differ && k < sends.size() && sends[k];
      if (wanted == preferred_[k]) continue;
      DAGC_CUDA(cudaDeviceSynchronize());  // what the stream has begun
      if (other_[k] == nullptr) {
        int least = 0, greatest = 0;
        DAGC_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        DAGC_CUDA(cudaStreamCreateWithPriority(&other_[k], cudaStreamNonBlocking, greatest));
      }
      std::swap((*streams)[k], other_[k]);
      preferred_[k] = wanted;
    }
  }

 private:
  std::vector<cudaStream_t> other_;
  std::vector<bool> preferred_;
};

}  // namespace dagc
