// The GPUs of a rank beyond its first one.
//
//   dagc::FurtherGpus gpus{2};                   // of two in all
//   gpus.find(0);
//   gpus.enter(1, stream);                       // the second GPU: what follows is enqueued there, after what is on `stream`
//   kernel<<<grid, block, 0, gpus.stream(1, stream)>>>(x);
//   gpus.leave(1, stream);                       // what `stream` gets next comes after it
//
// A stream of the program is of the first GPU. On a further one it has a companion, which the two events of `enter` and `leave`
// order with it: the order of ops is that of the program's streams, on whichever GPU they run.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"

namespace dagc {

class FurtherGpus {
 public:
  explicit FurtherGpus(int number) : number_(number) {}
  FurtherGpus(const FurtherGpus&) = delete;
  FurtherGpus& operator=(const FurtherGpus&) = delete;
  ~FurtherGpus() {
    for (auto& [key, one] : companions_) {
      cudaStreamDestroy(one.stream);
      cudaEventDestroy(one.before);
      cudaEventDestroy(one.after);
    }
  }

  // After the rank has its first GPU. Ends the program if there are fewer than `needed`, which ops use that run nowhere else.
  void find(int needed) {
    if (cudaGetDeviceCount(&there_) != cudaSuccess) there_ = 0;
    if (there_ > 0) DAGC_CUDA(cudaGetDevice(&first_));
    if (needed > there_)
      fail(exit_missing, "ops of this program run on " + std::to_string(needed) + " GPUs of a rank, and this host has " +
                             std::to_string(there_) + "; leave their device open, or fix it by -D OP.device=gpu");
    for (int from = 0; from < number_ && has(from); ++from)
      for (int to = 0; to < number_ && has(to); ++to) link(from, to);
    if (there_ > 0) leave();
  }
  bool has(int unit) const { return unit < number_ && unit < there_; }

  // What the thread allocates and issues until `leave` is on this GPU.
  void enter(int unit) const { DAGC_CUDA(cudaSetDevice(number_of(unit))); }
  void leave() const { DAGC_CUDA(cudaSetDevice(first_)); }

  void enter(int unit, cudaStream_t home) {
    Companion& one = companion(unit, home);
    DAGC_CUDA(cudaEventRecord(one.before, home));
    enter(unit);
    DAGC_CUDA(cudaStreamWaitEvent(one.stream, one.before, 0));
  }
  cudaStream_t stream(int unit, cudaStream_t home) { return companion(unit, home).stream; }
  void leave(int unit, cudaStream_t home) {
    Companion& one = companion(unit, home);
    DAGC_CUDA(cudaEventRecord(one.after, one.stream));
    leave();
    DAGC_CUDA(cudaStreamWaitEvent(home, one.after, 0));
  }

 private:
  struct Companion {
    cudaStream_t stream = nullptr;
    cudaEvent_t before = nullptr, after = nullptr;  // the one of the first GPU, the other of this one
  };

  // Copies from one GPU to another take the link between the two if there is one, else they go through the host.
  void link(int from, int to) const {
    int direct = 0;
    const int a = number_of(from), b = number_of(to);
    enter(from);
    if (a != b && cudaDeviceCanAccessPeer(&direct, a, b) == cudaSuccess && direct) cudaDeviceEnablePeerAccess(b, 0);
    cudaGetLastError();  // of a link that is open already
  }
  int number_of(int unit) const { return (first_ + unit) % there_; }

  Companion& companion(int unit, cudaStream_t home) {
    Companion& one = companions_[{unit, home}];
    if (one.stream == nullptr) {
      DAGC_CUDA(cudaEventCreateWithFlags(&one.before, cudaEventDisableTiming));
      enter(unit);
      DAGC_CUDA(cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking));
      DAGC_CUDA(cudaEventCreateWithFlags(&one.after, cudaEventDisableTiming));
      leave();
    }
    return one;
  }

  int number_, first_ = 0, there_ = 0;
  std::map<std::pair<int, cudaStream_t>, Companion> companions_;
};

}  // namespace dagc
