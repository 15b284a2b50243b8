// Host target: state of a block's threads, and results of warp functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host_types.hpp"

namespace dagc::host {

class Fiber;

inline constexpr unsigned int kMaxThreads = 1024;
inline constexpr std::size_t kMaxShared = 227 * 1024;

// Place of a launch in the source, for messages.
struct Site {
  const void* kernel;
  const char* file;
  int line;
};

enum class Wait : std::uint8_t { none, barrier, sync, shuffle, ballot, match, fold };

inline const char* name(Wait wait) {
  switch (wait) {
    case Wait::none: return "nothing";
    case Wait::barrier: return "__syncthreads";
    case Wait::sync: return "__syncwarp";
    case Wait::shuffle: return "__shfl_sync";
    case Wait::ballot: return "__ballot_sync, __all_sync or __any_sync";
    case Wait::match: return "__match_any_sync";
    case Wait::fold: return "__reduce_sync";
  }
  return "";
}

// One thread of the block.
struct Lane {
  Fiber* fiber = nullptr;  // its suspended stack
  uint3 index{0, 0, 0};
  Wait wait = Wait::none;
  std::uint8_t source = 0;  // shuffle: the lane to read from
  std::uint32_t mask = 0;   // of the warp exchange that it waits for
  std::uint64_t value = 0, result = 0;
  std::uint64_t (*fold)(std::uint64_t, std::uint64_t) = nullptr;
};

struct Warp {
  std::uint32_t live = 0;     // not yet exited
  std::uint32_t waiting = 0;  // in an exchange of the warp
};

struct Votes {
  int any = 0, all = 1, count = 0;
};

// Gives each lane of `group`, which all wait in an exchange of this kind, its result. `lanes`: the warp's 32.
inline void resolve(Lane* lanes, std::uint32_t group, Wait kind) {
  constexpr std::uint64_t undefined = ~std::uint64_t{0};  // value that a shuffle reads from a missing lane: NaN
  std::uint64_t common = 0;
  bool first = true;
  for (std::uint32_t left = group; left != 0 && kind != Wait::sync; left &= left - 1) {
    const int i = __builtin_ctz(left);
    Lane& lane = lanes[i];
    switch (kind) {
      case Wait::shuffle: lane.result = (group >> lane.source & 1) != 0 ? lanes[lane.source].value : undefined; break;
      case Wait::ballot: common |= static_cast<std::uint64_t>(lane.value != 0) << i; break;
      case Wait::fold: common = first ? lane.value : lane.fold(common, lane.value); break;
      case Wait::match:
        lane.result = 0;
        for (std::uint32_t rest = group; rest != 0; rest &= rest - 1) {
          const int k = __builtin_ctz(rest);
          lane.result |= static_cast<std::uint64_t>(lanes[k].value == lane.value) << k;
        }
        break;
      default: break;
    }
    first = false;
  }
  if (kind != Wait::ballot && kind != Wait::fold) return;
  for (std::uint32_t left = group; left != 0; left &= left - 1) lanes[__builtin_ctz(left)].result = common;
}

}  // namespace dagc::host
