// binding SYSFS: what a machine's files say, and shares of its cores. Then ranks are bound as DAGC_BIND says; ends with 1 where
// that is wrong.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dagc/device.hpp"

namespace {

using Numbers = std::vector<int>;

void expect(bool good, const std::string& what) {
  if (!good) dagc::fail(1, what);
}

void lists() {
  expect(dagc::numbers_of("0-3,8") == Numbers{0, 1, 2, 3, 8}, "a list");
  expect(dagc::numbers_of("").empty() && dagc::numbers_of("x").empty(), "no list");
  expect(dagc::list_of({0, 1, 2, 3, 8}) == "0-3,8", "a list is written");
  std::string error;
  const auto seats = dagc::seats_of("0@1,2@0", &error);
  expect(error.empty() && seats.size() == 2 && seats[1].gpu == 2 && seats[1].node == 0, "seats");
  for (const char* bad : {"0", "0@", "0@1x", "-1@0"}) {
    error.clear();
    expect(dagc::seats_of(bad, &error).empty() && !error.empty(), std::string("no seat: ") + bad);
  }
}

// Two nodes of two cores of two threads, of which the second ones have numbers from 4 on.
void machine(const std::string& root) {
  const dagc::Topology found{root};
  expect(found.cores_of(1) == Numbers{2, 3, 6, 7} && found.cores_of(2).empty(), "cores of a node");
  expect(found.nodes_of({0, 3}) == Numbers{0, 1} && found.nodes_of({6}) == Numbers{1}, "nodes of cores");
  expect(found.node_of_gpu("0000:3B:00.0") == 1 && found.node_of_gpu("0000:00:00.0") == -1, "the node of a GPU");
  const Numbers cores = found.by_core(found.cores_of(1));
  expect(dagc::share_of(cores, 0, 2) == Numbers{2, 6} && dagc::share_of(cores, 1, 2) == Numbers{3, 7}, "threads of a core stay together");
  expect(dagc::share_of(cores, 4, 5) == Numbers{2, 3, 6, 7}, "too few cores are shared");
  expect(found.first_threads({3, 6, 7}) == Numbers{2, 3}, "first threads");
  expect(!dagc::crowded({{{2, 6}, {2}}, {{3, 7}, {3}}}), "ranks with cores of their own");
  expect(dagc::crowded({{{2}, {2}}, {{6}, {2}}}) && dagc::crowded({{{2}, {2}}, {{2}, {2}}}), "threads of one core, and one thread");
}

}  // namespace

int main(int argc, char** argv) {
  dagc::Mpi mpi(&argc, &argv);
  lists();
  machine(argv[1]);
  dagc::BindingCost cost;
  dagc::binding_cost::copies(dagc::own_cores(), dagc::own_cores(), &cost);
  expect(cost.copies > 0 && cost.copies_near > 0, "copies are timed");
  if (const char* const core = std::getenv("DAGC_TEST_CORE")) {
    expect(dagc::binding_cost::run_on({std::atoi(core)}), "the core of the test");
    for (const std::string& place : dagc::placement_of(MPI_COMM_WORLD))
      if (mpi.rank() == 0) std::printf("%s\n", place.c_str());
    return 0;
  }
  const std::size_t before = dagc::own_cores().size();
  dagc::take_gpu(mpi.rank(), MPI_COMM_WORLD);
  dagc::Hosts hosts;
  hosts.find(MPI_COMM_WORLD);
  const dagc::LocalRank local = hosts.local();
  expect(hosts.first() == mpi.rank() - local.rank, "the first rank of a host");
  // Each has a share, and equal ranks of two declared hosts have the same one.
  const std::size_t share = before / static_cast<std::size_t>(local.ranks);
  const std::size_t now = dagc::own_cores().size();
  expect(dagc::wanted_binding() == "show" ? now == before : share == 0 || now == share || now == share + 1, "the share of a rank");
  for (const std::string& place : dagc::placement_of(MPI_COMM_WORLD))
    if (mpi.rank() == 0) std::printf("%s\n", place.c_str());
  return 0;
}
