// Threads of OpenMP: the ranks of one host share its cores.
#pragma once

#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dagc/check.hpp"

namespace dagc {

// The number of threads of a rank that may use `own` cores, if the ranks of its host may use `all` different cores,
// `sum` cores counted once for each rank, and the host has `online` cores. Ranks that are bound to cores of their own
// use all of these; ranks that may use the same ones divide them. If these are all cores of the host, one in eight is
// left to other processes: a bound thread cannot leave a core that another process uses, and all others wait for it.
constexpr int threads_of(std::int64_t own, std::int64_t all, std::int64_t sum, std::int64_t online) {
  const std::int64_t used = own == all && all == online ? all - all / 8 : all;
  return static_cast<int>(std::max<std::int64_t>(1, own * used / std::max<std::int64_t>(1, sum)));
}

// Threads of this rank's pool, all but the calling one, each on a core of `cores` of its own. Without it two of them may be
// woken up on one core: both wait actively, neither lets the other run before its time slice ends, and each parallel region
// takes milliseconds. The calling thread begins on the first of them, and may use `mine`, as threads may that it starts later.
inline void bind_threads(const std::vector<int>& cores, const cpu_set_t& mine) {
#ifdef _OPENMP
#pragma omp parallel num_threads(static_cast<int>(cores.size()))
#endif
  {
    const int thread = omp_get_thread_num();
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cores[static_cast<std::size_t>(thread)], &own);
    // If binding is not permitted, nothing changes.
    static_cast<void>(sched_setaffinity(0, sizeof own, &own));
    if (thread == 0) static_cast<void>(sched_setaffinity(0, sizeof mine, &mine));
  }
}

// The cores of a rank that starts so many threads, the `rank`-th of its host; none where ranks share some cores only.
inline std::vector<int> cores_of(const cpu_set_t& mine, std::int64_t own, std::int64_t all, std::int64_t sum, int rank,
                                 int threads) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mine)) cores.push_back(core);
  const std::int64_t first = sum == all ? 0 : std::int64_t{rank} * threads;  // cores of its own, or those of all
  if ((sum != all && own != all) || first + threads > static_cast<std::int64_t>(cores.size())) return {};
  return {cores.begin() + first, cores.begin() + first + threads};
}

// Whether environment variables determine the placement of threads.
inline bool bound_by_user() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

// Sets the number of threads of this rank and binds them to cores, unless OMP_NUM_THREADS does. Returns the cores to which it
// bound them. Collective.
inline std::vector<int> share_cores(MPI_Comm comm) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return {};
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
  cpu_set_t every = mine;
  unsigned char bits[sizeof mine];
  std::memcpy(bits, &mine, sizeof mine);
  const std::int64_t own = CPU_COUNT(&mine);
  std::int64_t sum = own;
  int rank = 0;
  MPI_Comm host = MPI_COMM_NULL;
  DAGC_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  DAGC_MPI(MPI_Comm_rank(host, &rank));
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, bits, sizeof bits, MPI_BYTE, MPI_BOR, host));
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT64_T, MPI_SUM, host));
  DAGC_MPI(MPI_Comm_free(&host));
  std::memcpy(&every, bits, sizeof every);
  const std::int64_t all = CPU_COUNT(&every);
  const int threads = threads_of(own, all, sum, sysconf(_SC_NPROCESSORS_ONLN));
  omp_set_num_threads(threads);
  if (threads <= 1 || bound_by_user()) return {};
  const std::vector<int> cores = cores_of(mine, own, all, sum, rank, threads);
  if (!cores.empty()) bind_threads(cores, mine);
  return cores;
}

}  // namespace dagc
