// Host target: the threads of one block, on one thread of the CPU.
//
// They run one after another as plain calls, on a stack for them, until one must wait (a barrier, a warp exchange); only
// then it keeps its stack, and the next continues on another. A kernel without barriers costs a call per thread.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "host_fiber.hpp"
#include "host_lanes.hpp"
#include "host_types.hpp"
#include "tsan.hpp"

inline thread_local uint3 threadIdx{0, 0, 0};
inline thread_local uint3 blockIdx{0, 0, 0};
inline thread_local dim3 blockDim{1, 1, 1};
inline thread_local dim3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;

namespace dagc {

// CUDA's variables of the running thread.
struct Here {
  const uint3 &threadIdx, &blockIdx;
  const dim3 &blockDim, &gridDim;
};

// Those of the thread that runs, in kernels only. Text is compiled with `dagc::here().threadIdx` for `threadIdx`: in a
// shared library each use of a thread-local variable is a call.
__attribute__((always_inline)) inline const Here& here() { return host::Fiber::on_stack<const Here>(); }

}  // namespace dagc

namespace dagc::host {

// Runs blocks on the calling thread; one per thread.
class Block {
 public:
  // The current one of this thread; null outside of kernels.
  static Block*& here() {
    static thread_local Block* block = nullptr;
    return block;
  }

  void begin(dim3 grid, dim3 block, std::size_t shared) {
    variables_.gridDim = grid;
    variables_.blockDim = block;
    total_ = block.x * block.y * block.z;
    set_shared(shared);
  }

  // Runs the block of this index of the launch that `begin` started.
  template <class Kernel>
  void run(const Kernel& kernel, const Site& site, uint3 index) {
    site_ = &site;
    variables_.blockIdx = index;
    next_ = exited_ = at_barrier_ = 0;
    engaged_ = false;
    start_index_ = {0, 0, 0};
    work_ = [](Block& block, const void* k) { block.start_lanes(*static_cast<const Kernel*>(k)); };
    kernel_ = &kernel;
    joining_ = true;
    go(main_, *idle_fiber());
    joining_ = false;
  }

  Votes barrier(int vote) {
    engage();
    votes_.any |= vote != 0;
    votes_.all &= vote != 0;
    votes_.count += vote != 0;
    ++at_barrier_;
    lanes_[current_].wait = Wait::barrier;
    if (!release_barrier()) suspend();
    return passed_;
  }

  std::uint64_t exchange(Wait kind, std::uint32_t mask, std::uint64_t value, unsigned int source = 0,
                         std::uint64_t (*fold)(std::uint64_t, std::uint64_t) = nullptr) {
    engage();
    Lane& me = lanes_[current_];
    Warp& warp = warps_[current_ / 32];
    const std::uint32_t bit = 1u << (current_ % 32);
    if ((mask & bit) == 0)
      report("the mask of %s (%#x) does not name the calling lane %u", name(kind), mask, current_ % 32);
    me.wait = kind;
    me.mask = mask;
    me.value = value;
    me.source = static_cast<std::uint8_t>(source);
    me.fold = fold;
    warp.waiting |= bit;
    if (!release_warp(current_)) suspend();
    return me.result;
  }

  std::uint32_t live_mask() {
    engage();
    return warps_[current_ / 32].live;
  }
  unsigned int lane() const { return current_ % 32; }

  void* shared() { return shared_.get(); }

 private:
  void set_shared(std::size_t bytes) {
    if (bytes <= shared_bytes_) return;
    shared_.reset(static_cast<std::byte*>(std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024)));
    if (shared_ == nullptr) fatal("no memory for a block's shared memory");
    shared_bytes_ = bytes;
  }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  // Runs lanes that have not started, until none is left. Called again, on another stack, when one of them waits.
  template <class Kernel>
  void start_lanes(const Kernel& kernel) {
    while (next_ < total_) {
      current_ = next_++;
      variables_.threadIdx = start_index_;
      if (++start_index_.x == variables_.blockDim.x) {
        start_index_.x = 0;
        if (++start_index_.y == variables_.blockDim.y) {
          start_index_.y = 0;
          ++start_index_.z;
        }
      }
      kernel();
      ++exited_;
      if (engaged_) lane_exited();
    }
  }

  // Lanes are tracked from the first wait of a block.
  void engage() {
    if (engaged_) return;
    engaged_ = true;
    votes_ = Votes{};
    if (lanes_.empty()) {
      lanes_.resize(kMaxThreads);
      queue_.resize(kMaxThreads);
    }
    queue_first_ = queue_count_ = 0;
    for (unsigned int first = 0; first < total_; first += 32) {
      const unsigned int count = total_ - first < 32 ? total_ - first : 32;
      const std::uint32_t all = count == 32 ? ~0u : (1u << count) - 1;
      const std::uint32_t gone = first + count <= current_ ? all
                                 : first >= current_       ? 0
                                                           : (1u << (current_ - first)) - 1;
      warps_[first / 32] = Warp{all & ~gone, 0};
      for (unsigned int i = 0; i < count; ++i) lanes_[first + i].wait = Wait::none;
    }
  }

  void lane_exited() {
    Warp& warp = warps_[current_ / 32];
    warp.live &= ~(1u << (current_ % 32));
    if (at_barrier_ > 0) release_barrier();
    const unsigned int first = current_ / 32 * 32;
    for (unsigned int i = 0; i < 32; ++i)  // those waiting for the lane that exited
      if ((warp.waiting >> i & 1) != 0) release_warp(first + i);
  }

  // Opens the barrier if all lanes that have not exited are there. The current lane continues, the others are queued.
  bool release_barrier() {
    if (at_barrier_ != total_ - exited_) return false;
    passed_ = votes_;
    votes_ = Votes{};
    at_barrier_ = 0;
    for (unsigned int i = 0; i < total_; ++i) {
      if (lanes_[i].wait != Wait::barrier) continue;
      lanes_[i].wait = Wait::none;
      if (i != current_) enqueue(i);
    }
    return true;
  }

  // Completes the exchange that lane `number` waits in, if all lanes of its mask that have not exited are in it.
  bool release_warp(unsigned int number) {
    Warp& warp = warps_[number / 32];
    Lane* lanes = &lanes_[number / 32 * 32];
    const Lane& one = lanes_[number];
    const std::uint32_t group = one.mask & warp.live;
    if ((warp.waiting & group) != group) return false;
    for (std::uint32_t left = group; left != 0; left &= left - 1) {
      const Lane& other = lanes[__builtin_ctz(left)];
      if (other.mask != one.mask) return false;
      if (other.wait != one.wait) report("lanes of a warp meet in %s and in %s", name(one.wait), name(other.wait));
    }
    resolve(lanes, group, one.wait);
    warp.waiting &= ~group;
    for (std::uint32_t left = group; left != 0; left &= left - 1) {
      const unsigned int i = number / 32 * 32 + static_cast<unsigned int>(__builtin_ctz(left));
      lanes_[i].wait = Wait::none;
      if (i != current_) enqueue(i);
    }
    return true;
  }

  void enqueue(unsigned int lane) {
    unsigned int at = queue_first_ + queue_count_++;
    if (at >= kMaxThreads) at -= kMaxThreads;
    queue_[at] = static_cast<std::uint16_t>(lane);
  }

  // The current lane waits: its stack is kept, and other lanes run until it is queued and scheduled.
  void suspend() {
    const unsigned int me = current_;
    lanes_[me].fiber = running_;
    lanes_[me].index = variables_.threadIdx;
    Fiber& mine = *running_;
    if (queue_count_ == 0 && next_ < total_) {
      go(mine, *idle_fiber());
    } else {
      leave(mine);
    }
    current_ = me;
    variables_.threadIdx = lanes_[me].index;
  }

  // Switches to any runnable lane, from a stack that is idle until switched back to.
  void leave(Fiber& from) {
    if (queue_count_ > 0) {
      const unsigned int lane = queue_[queue_first_];
      if (++queue_first_ == kMaxThreads) queue_first_ = 0;
      --queue_count_;
      go(from, *lanes_[lane].fiber);
    } else if (exited_ == total_ && joining_) {
      go(from, main_);
    } else {
      deadlock();
    }
  }

  void go(Fiber& from, Fiber& to) {
    if (&from == &to) return;
    running_ = &to;
    Fiber::change(from, to);
  }

  Fiber* idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(
          serve, Here{variables_.threadIdx, variables_.blockIdx, variables_.blockDim, variables_.gridDim}));
      return fibers_.back().get();
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // The endless loop of a fiber: start lanes, then be idle.
  static void serve() {
    Block& block = *here();
    for (;;) {
      block.work_(block, block.kernel_);
      Fiber* me = block.running_;
      block.idle_.push_back(me);
      block.leave(*me);
    }
  }

  template <class... Values>
  [[noreturn]] void report(const char* format, Values... values) {
    char what[512], where[512], message[1536];
    std::snprintf(what, sizeof what, format, values...);
    Dl_info symbol{};
    if (site_->kernel != nullptr && dladdr(site_->kernel, &symbol) != 0 && symbol.dli_sname != nullptr)
      std::snprintf(where, sizeof where, "kernel %s, launched at %s:%d", symbol.dli_sname, site_->file, site_->line);
    else
      std::snprintf(where, sizeof where, "kernel launched at %s:%d", site_->file, site_->line);
    std::snprintf(message, sizeof message, "%s: block (%u, %u, %u): %s", where, variables_.blockIdx.x,
                  variables_.blockIdx.y, variables_.blockIdx.z, what);
    fatal(message);
  }

  [[noreturn]] void deadlock() {
    unsigned int in_exchange = 0, missing = 0;
    const Lane* one = nullptr;
    for (unsigned int i = 0; i < total_; ++i) {
      const Lane& lane = lanes_[i];
      if (lane.wait == Wait::none || lane.wait == Wait::barrier) continue;
      ++in_exchange;
      if (one == nullptr) {
        one = &lane;
        for (std::uint32_t left = lane.mask & warps_[i / 32].live; left != 0; left &= left - 1) {
          const unsigned int other = static_cast<unsigned int>(__builtin_ctz(left));
          const Lane& peer = lanes_[i / 32 * 32 + other];
          if (peer.wait != lane.wait || peer.mask != lane.mask) missing |= 1u << other;
        }
      }
    }
    if (one == nullptr) report("%u threads wait in __syncthreads for ever", at_barrier_);
    report(
        "deadlock: %u threads wait in __syncthreads, %u in warp functions, the first of them in %s with mask %#x, "
        "where the lanes %#x do not come",
        at_barrier_, in_exchange, name(one->wait), one->mask, missing);
  }

  // The variables of the thread whose block this is.
  struct Variables {
    uint3 &threadIdx, &blockIdx;
    dim3 &blockDim, &gridDim;
  };
  const Variables variables_{::threadIdx, ::blockIdx, ::blockDim, ::gridDim};
  const Site* site_ = nullptr;
  void (*work_)(Block&, const void*) = nullptr;
  const void* kernel_ = nullptr;
  unsigned int total_ = 0, next_ = 0, exited_ = 0, current_ = 0, at_barrier_ = 0;
  unsigned int queue_first_ = 0, queue_count_ = 0;
  bool engaged_ = false, joining_ = false;
  uint3 start_index_{0, 0, 0};
  Votes votes_, passed_;
  Warp warps_[kMaxThreads / 32];
  std::vector<Lane> lanes_;
  std::vector<std::uint16_t> queue_;  // runnable lanes
  Fiber main_;  // the stack of the thread, where launches begin
  Fiber* running_ = &main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::unique_ptr<std::byte, Free> shared_;
  std::size_t shared_bytes_ = 0;
};

inline constexpr std::uint64_t kEpochs = 64;  // of a launch, for ThreadSanitizer

// Runs all blocks of a launch on the calling thread.
template <class Kernel>
void run_grid(const Site& site, dim3 grid, dim3 block, std::size_t shared, const Kernel& kernel) {
  Block*& here = Block::here();
  if (here == nullptr) here = new Block;  // as long as the thread, which is as long as the process
  Block& runner = *here;
  runner.begin(grid, block, shared);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z, epoch = (blocks + kEpochs - 1) / kEpochs;
  std::uint64_t count = 0;
  for (unsigned int z = 0; z < grid.z; ++z)
    for (unsigned int y = 0; y < grid.y; ++y)
      for (unsigned int x = 0; x < grid.x; ++x) {
        runner.run(kernel, site, {x, y, z});
        if (DAGC_TSAN && ++count % epoch == 0) tsan::new_epoch();
      }
}

// The block of the calling thread; ends the process if there is none.
inline Block& block_here(const char* function) {
  Block* block = Block::here();
  if (block != nullptr) return *block;
  char message[128];
  std::snprintf(message, sizeof message, "%s called outside of a kernel", function);
  fatal(message);
}

}  // namespace dagc::host

namespace dagc {

// A variable of static shared memory, with its address kept: in a shared library the compiler would ask for it at each
// use, since the variable is thread-local.
template <class T>
__attribute__((always_inline)) inline T& shared(T& variable) {
#if defined(__PIC__) && !defined(__PIE__)
  T* address = &variable;
  __asm__("" : "+r"(address));
  return *address;
#else
  return variable;
#endif
}

// The launch's dynamic shared memory.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(host::block_here("dynamic shared memory").shared());
}

}  // namespace dagc

// CUDA's `extern __shared__ T name[];`, for both targets.
#define DAGC_DYNAMIC_SHARED(type, name) type* const name = dagc::dynamic_shared<type>()
