// Threads of OpenMP: the ranks of one host share its cores.
#pragma once

#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "dagc/check.hpp"

namespace dagc {

// How many threads a rank starts that may use `own` cores, where the ranks of its host may use `all` different cores, and
// `sum` counted once for each rank. Ranks that are bound to cores of their own use all of these; ranks that may use the
// same ones divide them.
inline int threads_of(std::int64_t own, std::int64_t all, std::int64_t sum) {
  return static_cast<int>(std::max<std::int64_t>(1, own * all / std::max<std::int64_t>(1, sum)));
}

// Sets the number of threads of this rank, unless OMP_NUM_THREADS does. Collective.
inline void share_cores(MPI_Comm comm) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
  unsigned char bits[sizeof mine];
  std::memcpy(bits, &mine, sizeof mine);
  const std::int64_t own = CPU_COUNT(&mine);
  std::int64_t sum = own;
  MPI_Comm host = MPI_COMM_NULL;
  DAGC_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, bits, sizeof bits, MPI_BYTE, MPI_BOR, host));
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT64_T, MPI_SUM, host));
  DAGC_MPI(MPI_Comm_free(&host));
  std::memcpy(&mine, bits, sizeof mine);
  omp_set_num_threads(threads_of(own, CPU_COUNT(&mine), sum));
}

}  // namespace dagc
