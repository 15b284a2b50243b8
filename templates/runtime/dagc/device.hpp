// What a program asks of its surroundings before it starts: the ranks that its data were made for, and a GPU.
#pragma once

#include <mpi.h>
#include <sys/stat.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"

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

// Ends the program unless `data` was made for exactly `ranks` ranks.
inline void check_ranks(const std::string& data, int rank, int ranks, MPI_Comm comm) {
  if (rank == 0) {
    if (!is_directory(data)) fail(exit_bad_input, data + ": no such folder; create it with `dagc setup`");
    int found = 0;
    while (is_directory(rank_directory(data, found))) ++found;
    if (found == 0) fail(exit_bad_input, data + ": has no rank-0000; create it with `dagc setup`");
    if (found != ranks)
      fail(exit_missing, data + ": made for " + std::to_string(found) + " ranks, but started with " +
                             std::to_string(ranks) + "; start it with mpiexec -n " + std::to_string(found));
  }
  DAGC_MPI(MPI_Barrier(comm));
}

// Takes GPU (local rank mod number of GPUs). Says so where ranks share one. Ends the program where there is none.
inline void take_gpu(int rank, MPI_Comm comm) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0)
    fail(exit_missing, "no GPU found; for a machine without one compile with --target host");
  const LocalRank local = local_rank(comm);
  DAGC_CUDA(cudaSetDevice(local.rank % gpus));
#if defined(__CUDACC__)
  if (rank == 0 && local.ranks > gpus)
    std::fprintf(stderr, "note: %d ranks of this host share %d GPU%s\n", local.ranks, gpus, gpus == 1 ? "" : "s");
#else
  static_cast<void>(rank);
#endif
}

// Ends the program, before any message, unless the MPI takes device pointers or the user says that it does.
inline void require_device_pointers(bool vouched) {
  if (vouched || mpi_takes_device_pointers()) return;
  fail(exit_missing,
       "this program gives device pointers to MPI (transport mpi_cuda), and this MPI does not say that it takes them; "
       "compile with --transport mpi_host, or give --mpi-takes-device-pointers if you know that it does");
}

// What the first rank with something to say has to say, "rank R: text", on every rank; "" where none has.
inline std::string first_wrong(const std::string& mine, int rank, MPI_Comm comm) {
  int here = mine.empty() ? INT_MAX : rank, first = INT_MAX;
  DAGC_MPI(MPI_Allreduce(&here, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == INT_MAX) return "";
  std::string text = mine;
  int length = static_cast<int>(text.size());
  DAGC_MPI(MPI_Bcast(&length, 1, MPI_INT, first, comm));
  text.resize(static_cast<std::size_t>(length));
  DAGC_MPI(MPI_Bcast(&text[0], length, MPI_CHAR, first, comm));
  return "rank " + std::to_string(first) + ": " + text;
}

// What is wrong where these inputs and constants have changed; "" where none has.
inline std::string changed_text(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "`" : ", `") + name + "`";
  return list + (names.size() == 1 ? " was" : " were") + " changed, which no op declares to write";
}

// What is wrong where something was written behind the end of these arrays; "" where nothing was.
inline std::string overrun_text(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "`" : ", `") + name + "`";
  return "something was written behind the end of " + list;
}

// Says what `first_wrong` gave, once, and returns the exit code of every rank.
inline int report(const std::string& wrong, int rank) {
  if (wrong.empty()) return exit_good;
  if (rank == 0) std::fprintf(stderr, "dagc: %s\n", wrong.c_str());
  return exit_wrong_result;
}

}  // namespace dagc
