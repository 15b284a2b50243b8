// Agreement of the ranks on failures: a failure on one rank becomes a failure on all.
#pragma once

#include <mpi.h>

#include <climits>
#include <exception>
#include <string>

#include "dagc/check.hpp"

namespace dagc {

// The text of the first rank that has one, as "rank R: text", on every rank; "" if none has.
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

// Runs `work`, which is not collective, on every rank. In a library, if it fails on one rank, it fails on all of them,
// with the text of the first: no rank waits for one that has left. A program ends at the first failure.
template <class Work>
void together(MPI_Comm comm, Work work) {
#ifdef DAGC_LIBRARY
  std::string mine;
  int code = exit_good, rank = 0, most = exit_good;
  DAGC_MPI(MPI_Comm_rank(comm, &rank));
  try {
    work();
  } catch (const Failure& failure) {
    mine = failure.text;
    code = failure.code;
  } catch (const std::exception& error) {  // of the standard library: memory
    mine = std::string("failed: ") + error.what();
    code = exit_run_failed;
  }
  const std::string wrong = first_wrong(mine, rank, comm);
  if (wrong.empty()) return;
  DAGC_MPI(MPI_Allreduce(&code, &most, 1, MPI_INT, MPI_MAX, comm));
  throw Failure{most, wrong};
#else
  static_cast<void>(comm);
  work();
#endif
}

}  // namespace dagc
