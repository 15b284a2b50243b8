// Requirements checked before a program starts: the number of ranks that its data were written for, and a GPU.
#pragma once

#include <dirent.h>
#include <mpi.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "dagc/binding.hpp"
#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"
#include "dagc/vote.hpp"

namespace dagc {

inline bool is_directory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Folder of one rank: DIR/rank-0003.
inline std::string rank_directory(const std::string& data, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "/rank-%04d", rank);
  return data + name;
}

// One more than the highest rank of a directory with arrays; 0: it has none.
inline int highest_rank(const std::string& data) {
  int highest = 0;
  DIR* const directory = opendir(data.c_str());
  if (directory == nullptr) return 0;
  while (const dirent* const entry = readdir(directory)) {
    int rank = -1;
    if (std::sscanf(entry->d_name, "rank-%d", &rank) == 1 && rank_directory("", rank) == std::string("/") + entry->d_name)
      highest = std::max(highest, rank + 1);
  }
  closedir(directory);
  return highest;
}

// Ends the program unless `data` was written for exactly `ranks` ranks.
inline void check_ranks(const std::string& data, int rank, int ranks, MPI_Comm comm) {
  if (rank == 0) {
    if (!is_directory(data)) fail(exit_bad_input, data + ": no such directory; create it with `dagc setup`");
    const int found = std::max(highest_rank(data), 1);
    for (int r = 0; r < found; ++r) {
      const std::string name = rank_directory("", r).substr(1);
      if (!is_directory(rank_directory(data, r))) fail(exit_bad_input, data + ": has no " + name + "; create it with `dagc setup`");
    }
    if (found != ranks)
      fail(exit_missing, data + ": made for " + std::to_string(found) + (found == 1 ? " rank" : " ranks") +
                             ", but started with " + std::to_string(ranks) + "; start it with mpiexec -n " +
                             std::to_string(found));
  }
  DAGC_MPI(MPI_Barrier(comm));
}

// Of events without times. The host that waits for one gives its core away where the device's flags, which an application may
// have set, say that of waits for streams.
inline unsigned int event_flags() {
  unsigned int device = cudaDeviceScheduleAuto;
  DAGC_CUDA(cudaGetDeviceFlags(&device));
  const bool sleeps = (device & cudaDeviceScheduleMask) == cudaDeviceScheduleBlockingSync;
  return cudaEventDisableTiming | (sleeps ? cudaEventBlockingSync : 0u);
}

inline int number_of_gpus() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

// Selects the first of the GPUs of a rank, `each` in a row: (local rank * each) mod number of GPUs, or as DAGC_BIND says, and
// binds the rank. Reports if ranks share one. Ends the program if there is none. Collective.
inline void take_gpu(int rank, MPI_Comm comm, int each = 1) {
#if DAGC_TARGET_HOST
  host::gpus = std::max(each, 1);
#endif
  const int gpus = number_of_gpus();
  if (gpus == 0)
    fail(exit_missing, "no GPU found; for a machine without one compile with --target host");
  Hosts hosts;
  hosts.find(comm);
  const LocalRank local = hosts.local();
  DAGC_CUDA(cudaSetDevice(seated_gpu(comm, local, gpus, local.rank * each % gpus)));
  bind_rank(comm, hosts);
#if DAGC_TARGET_CUDA
  if (rank == 0 && local.ranks * each > gpus && local.ranks > 1)
    std::fprintf(stderr, "note: %d ranks of this host share %d GPU%s\n", local.ranks, gpus, gpus == 1 ? "" : "s");
#else
  static_cast<void>(rank);
#endif
}

// As `take_gpu`, for a program that runs without a GPU too (absent_gpu.hpp): `absent` is set where there is none, and the first
// rank without one says so.
inline void take_gpu_if_any(int rank, MPI_Comm comm, bool* absent, int each = 1) {
  *absent = number_of_gpus() == 0;
  int ranks = 1;
  DAGC_MPI(MPI_Comm_size(comm, &ranks));
  int first = *absent ? rank : ranks, here = *absent ? 0 : 1, all = here;
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm));
  DAGC_MPI(MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_SUM, comm));
  if (first == rank) std::fprintf(stderr, "note: %s: all ops run on the CPU\n", all == 0 ? "no GPU found" : "some ranks have no GPU");
  MPI_Comm group = MPI_COMM_NULL;
  DAGC_MPI(MPI_Comm_split(comm, here, rank, &group));
  if (!*absent) take_gpu(rank, group, each);
  DAGC_MPI(MPI_Comm_free(&group));
}

// Ends the program, before any message, unless the MPI accepts device pointers or the user asserts it.
inline void require_device_pointers(bool vouched) {
  if (vouched || mpi_takes_device_pointers()) return;
  fail(exit_missing,
       "this program passes device pointers to MPI (transport mpi_cuda), but this MPI does not report that it accepts them; "
       "compile with --transport mpi_host, or give --mpi-takes-device-pointers if you know that it does");
}

// The error if these inputs and constants have changed; "" if none has.
inline std::string changed_text(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "`" : ", `") + name + "`";
  return list + (names.size() == 1 ? " was" : " were") + " changed, which no op declares to write";
}

// The error if these elements, beyond arrays, were written; "" if none was.
inline std::string overrun_text(const std::vector<std::string>& elements) {
  if (elements.empty()) return "";
  std::string list;
  for (const std::string& element : elements) list += (list.empty() ? "" : "; ") + element;
  return "something was written beyond an array: " + list;
}

// Reports the result of `first_wrong`, once, and returns the exit code of every rank.
inline int report(const std::string& wrong, int rank) {
  if (wrong.empty()) return exit_good;
  if (rank == 0) std::fprintf(stderr, "dagc: %s\n", wrong.c_str());
  return exit_wrong_result;
}

}  // namespace dagc
