// Checks of a program's data before its first run: sizes that depend on the data, slices, `require`s.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Limits of the GPU, for `require`s on `hw.*`. On the host target, fixed values.
struct Hardware {
  std::int64_t max_threads_per_block = 1024;
  std::int64_t shared_per_block = 48 * 1024;
  std::int64_t warp_size = 32;
  std::int64_t sms = 1;
  std::int64_t memory = 0;  // bytes, of all ranks that use it; on the host target, of the machine
};

inline Hardware query_hardware() {
  Hardware out;
#if DAGC_TARGET_CUDA
  const auto ask = [](cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    DAGC_CUDA(cudaGetDevice(&device));
    DAGC_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
    return static_cast<std::int64_t>(value);
  };
  out.max_threads_per_block = ask(cudaDevAttrMaxThreadsPerBlock);
  out.shared_per_block = ask(cudaDevAttrMaxSharedMemoryPerBlock);
  out.warp_size = ask(cudaDevAttrWarpSize);
  out.sms = ask(cudaDevAttrMultiProcessorCount);
  std::size_t left = 0, whole = 0;
  DAGC_CUDA(cudaMemGetInfo(&left, &whole));
  out.memory = static_cast<std::int64_t>(whole);
#else
  out.memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
#endif
  return out;
}

// A size that was computed from features, which are real numbers.
inline std::int64_t whole(double size, const char* what) {
  const auto wrong = [&](const char* why) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", size);
    fail(exit_run_failed, std::string(what) + ": " + why + text);
  };
  if (!std::isfinite(size)) wrong("a dimension is not a number: ");
  if (size != std::floor(size)) wrong("a dimension is not whole (write `floor` or `ceil`): ");
  if (std::abs(size) > 4e18) wrong("a dimension is too large: ");
  return static_cast<std::int64_t>(size);
}

inline void check_size(std::int64_t has, std::int64_t wants, const char* what) {
  if (has != wants)
    fail(exit_run_failed, std::string(what) + ": has " + std::to_string(has) + " elements, needs " + std::to_string(wants));
}

// A slice start .. stop of a dimension of length `length`.
inline void check_slice(std::int64_t start, std::int64_t stop, std::int64_t length, const char* what) {
  if (start < 0 || start > stop || stop > length)
    fail(exit_run_failed, std::string(what) + ": the slice " + std::to_string(start) + " .. " + std::to_string(stop) +
                              " is not within 0 .. " + std::to_string(length));
}

// An integer that is passed by value as a T. `what`: the op and the formal.
template <class T>
void check_value(std::int64_t value, const char* what) {
  using Limits = std::numeric_limits<T>;
  const bool low = Limits::is_signed ? value < static_cast<std::int64_t>(Limits::min()) : value < 0;
  const bool high = value > 0 && static_cast<std::uint64_t>(value) > static_cast<std::uint64_t>(Limits::max());
  if (low || high) fail(exit_bad_input, std::string(what) + " does not hold " + std::to_string(value));
}

// A real number that is passed by value as a float.
inline void check_real(double value, const char* what) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max())
    fail(exit_bad_input, std::string(what) + " does not hold " + std::to_string(value));
}

// What all ranks of a communicator must have alike: compared there, and the first difference put into `wrong`. Collective
// over `comm`; nothing on ranks that are not in it.
template <class Value>
void compare_ranks(Value value, MPI_Comm comm, const char* what, std::string* wrong) {
  if (comm == MPI_COMM_NULL) return;
  const std::int64_t mine = value();
  std::int64_t least[2] = {mine, ~mine};
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, least, 2, MPI_INT64_T, MPI_MIN, comm));
  if (least[0] != ~least[1] && wrong->empty())
    *wrong = std::string(what) + " differs: it is " + std::to_string(least[0]) + " on one rank, " + std::to_string(~least[1]) +
             " on another";
}

inline void check_peer(std::int64_t peer, int ranks, const char* what) {
  if (peer < std::numeric_limits<int>::min())
    fail(exit_run_failed, std::string(what) + ": rank " + std::to_string(peer) + " does not fit an int");
  if (peer >= ranks)
    fail(exit_run_failed, std::string(what) + ": rank " + std::to_string(peer) + " does not exist, there are " + std::to_string(ranks));
}

inline void check_root(std::int64_t root, int ranks, const char* what) {
  if (root < 0 || root >= ranks)
    fail(exit_run_failed, std::string(what) + ": the root " + std::to_string(root) + " does not exist, there are " +
                              std::to_string(ranks) + " ranks");
}

inline void check_peers(const Peers& peers, std::int64_t buffer, int ranks, const char* what) {
  for (std::int64_t i = 0; i < peers.n; ++i) {
    check_peer(peers.rank(i), ranks, what);
    if (peers.counts[i] < 0) fail(exit_run_failed, std::string(what) + ": a count is negative: " + std::to_string(peers.counts[i]));
  }
  check_size(buffer, peers.total(), what);
}

// Peers that are divided among ops: two messages to one rank could be posted in either order.
inline void check_once(const Peers& peers, const char* what) {
  std::vector<int> ranks;
  for (std::int64_t i = 0; i < peers.n; ++i)
    if (peers.rank(i) >= 0) ranks.push_back(peers.rank(i));
  std::sort(ranks.begin(), ranks.end());
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end())
    fail(exit_bad_input, std::string(what) + ": rank " + std::to_string(*twice) +
                             " is there twice, but `split` divides the ranks among ops");
}

// A value in a message: `m = 5`.
struct NamedValue {
  template <typename T>
  NamedValue(const char* name, T value) : text(std::string(name) + " = " + shown(value)) {}

  template <typename T>
  static std::string shown(T value) {
    if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
    if constexpr (!std::is_floating_point_v<T>) return std::to_string(value);
    char out[32];
    std::snprintf(out, sizeof out, "%.17g", static_cast<double>(value));
    return out;
  }

  std::string text;
};

// A condition of the program, and the values of the names in it.
inline void check_require(bool holds, const char* what, const std::initializer_list<NamedValue>& values) {
  if (holds) return;
  std::string text = std::string(what) + " does not hold for these data";
  for (const NamedValue& value : values) text += (&value == values.begin() ? ": " : ", ") + value.text;
  fail(exit_bad_input, text);
}

// On rank 0, the text of a warning if the sizes of a rank are more than `far` times outside of those that a choice was
// measured at; else "". `beyond`: how many times, on this rank. `then`: what follows from it. Collective.
inline std::string far_sizes(MPI_Comm comm, const char* op, double beyond, double far, const char* measured,
                             const char* then = "the choice may be slow") {
  const double here[2] = {beyond, beyond > far ? 1.0 : 0.0};
  double most = 0, ranks_far = 0;
  int rank = 0, ranks = 1;
  DAGC_MPI(MPI_Reduce(&here[0], &most, 1, MPI_DOUBLE, MPI_MAX, 0, comm));
  DAGC_MPI(MPI_Reduce(&here[1], &ranks_far, 1, MPI_DOUBLE, MPI_SUM, 0, comm));
  DAGC_MPI(MPI_Comm_rank(comm, &rank));
  DAGC_MPI(MPI_Comm_size(comm, &ranks));
  if (rank != 0 || most <= far) return "";
  char text[256];
  if (std::isfinite(most))
    std::snprintf(text, sizeof text, "sizes are up to %.3g times outside of the tuned ones", most);
  else
    std::snprintf(text, sizeof text, "a feature is not finite, or has another sign than the tuned ones");
  char on[64];
  std::snprintf(on, sizeof on, " on %.0f of %d ranks: ", ranks_far, ranks);
  return std::string(op) + ": " + text + " (" + measured + ")" + on + then;
}

}  // namespace dagc
