// Where ranks run: which GPU each takes, on which cores its threads may run, and the NUMA nodes of both. DAGC_BIND says it:
//
//   none, show    as the starter left it (the default)
//   near          GPUs one after the other; cores of the node of the GPU, or of all where that is not known
//   0@0,2@1,...   the i-th rank of each host takes this GPU, and cores of this node
//
// Cores of a node are divided among the ranks of the host that get it, and are those which the starter gave to any rank of
// the host. A rank is bound before it allocates memory, which is then that of its node.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dagc/binding_cost.hpp"
#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/target.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// The numbers of `0-3,8`, in order; none of anything else.
inline std::vector<int> numbers_of(const std::string& list) {
  std::vector<int> out;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    for (int n = first; read >= 1 && n <= (read == 2 ? last : first); ++n) out.push_back(n);
  }
  return out;
}

// The reverse, of numbers in ascending order.
inline std::string list_of(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end - i > 1) out += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return out;
}

// What Linux says of the machine, from the files below `root`; NUMA nodes are -1 where it says nothing.
struct Topology {
  std::string root = "/sys";

  std::string first_line(const std::string& path) const {
    std::ifstream file(root + path);
    std::string line;
    std::getline(file, line);
    return line;
  }
  std::vector<int> cores_of(int node) const {
    return numbers_of(first_line("/devices/system/node/node" + std::to_string(node) + "/cpulist"));
  }
  std::vector<int> nodes_of(const std::vector<int>& cores) const {
    std::vector<int> out;
    for (const int node : numbers_of(first_line("/devices/system/node/online"))) {
      const std::vector<int> its = cores_of(node);
      if (std::any_of(cores.begin(), cores.end(), [&](int c) { return std::find(its.begin(), its.end(), c) != its.end(); }))
        out.push_back(node);
    }
    return out;
  }
  // `bus`: `0000:3B:00.0`
  int node_of_gpu(std::string bus) const {
    for (char& c : bus) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string line = first_line("/bus/pci/devices/" + bus + "/numa_node");
    return line.empty() ? -1 : std::atoi(line.c_str());
  }
  // The first hardware thread of a core.
  int first_thread(int core) const {
    const std::string at = "/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list";
    const std::vector<int> threads = numbers_of(first_line(at));
    return threads.empty() ? core : threads.front();
  }
  // Threads of one core stand together, so that a division separates as few as possible.
  std::vector<int> by_core(std::vector<int> cores) const {
    const auto place = [&](int core) { return std::make_pair(first_thread(core), core); };
    std::sort(cores.begin(), cores.end(), [&](int a, int b) { return place(a) < place(b); });
    return cores;
  }
  // The first threads of these, each once.
  std::vector<int> first_threads(std::vector<int> cores) const {
    for (int& core : cores) core = first_thread(core);
    std::sort(cores.begin(), cores.end());
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    return cores;
  }
};

// The `part`-th of `parts`, in ascending order; all of them if there are fewer than parts.
inline std::vector<int> share_of(std::vector<int> cores, std::size_t part, std::size_t parts) {
  if (cores.size() >= parts) {
    const auto begin = [&](std::size_t p) { return cores.begin() + static_cast<std::ptrdiff_t>(p * cores.size() / parts); };
    cores = std::vector<int>(begin(part), begin(part + 1));
  }
  std::sort(cores.begin(), cores.end());
  return cores;
}

// A GPU and a node for a rank; -1: not said.
struct Seat {
  int gpu = -1, node = -1;
};

// The seats of the ranks of a host: none unless `bind` lists them. Sets `error` if it is not a list of the above.
inline std::vector<Seat> seats_of(const std::string& bind, std::string* error) {
  std::vector<Seat> out;
  if (bind.empty() || bind == "none" || bind == "show" || bind == "near") return out;
  std::istringstream text(bind);
  for (std::string part; std::getline(text, part, ',');) {
    Seat seat;
    char rest = 0;
    if (std::sscanf(part.c_str(), "%d@%d%c", &seat.gpu, &seat.node, &rest) != 2 || seat.gpu < 0 || seat.node < 0) {
      *error = "DAGC_BIND: `" + part + "` is not GPU@NODE; give none, show, near, or one for each rank of a host: 0@0,1@0";
      return {};
    }
    out.push_back(seat);
  }
  return out;
}

inline std::string wanted_binding() {
  const char* const given = std::getenv("DAGC_BIND");
  return given ? given : "";
}

inline std::vector<int> own_cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
  std::vector<int> out;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mine)) out.push_back(core);
  return out;
}

// The NUMA node of the GPU that is selected.
inline int node_of_own_gpu([[maybe_unused]] const Topology& machine) {
#if DAGC_TARGET_CUDA
  int device = 0;
  char bus[32] = "";
  if (cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess)
    return machine.node_of_gpu(bus);
#endif
  return -1;
}

// The GPU of this rank: that of its seat, else `otherwise`. Collective over `comm`; ends the program for a seat that does not
// exist. `local`: of the rank.
inline int seated_gpu(MPI_Comm comm, const LocalRank& local, int gpus, int otherwise) {
  int gpu = otherwise;
  together(comm, [&] {
    std::string error;
    const std::vector<Seat> seats = seats_of(wanted_binding(), &error);
    if (!error.empty()) fail(exit_bad_input, error);
    if (seats.empty()) return;
    if (static_cast<int>(seats.size()) < local.ranks)
      fail(exit_bad_input, "DAGC_BIND has places for " + std::to_string(seats.size()) + " of the " + std::to_string(local.ranks) + " ranks of a host");
    const Seat seat = seats[static_cast<std::size_t>(local.rank)];
    if (seat.gpu >= gpus)
      fail(exit_bad_input, "DAGC_BIND: GPU " + std::to_string(seat.gpu) + " does not exist; a host has " + std::to_string(gpus));
    if (Topology().cores_of(seat.node).empty())
      fail(exit_bad_input, "DAGC_BIND: NUMA node " + std::to_string(seat.node) + " does not exist, or has no cores");
    gpu = seat.gpu;
  });
  return gpu;
}

// After the GPU is selected, before memory is allocated. Collective over `comm`.
inline void bind_rank(MPI_Comm comm, const Hosts& hosts) {
  const std::string wanted = wanted_binding();
  if (wanted.empty() || wanted == "none" || wanted == "show") return;
  std::string error;
  const std::vector<Seat> seats = seats_of(wanted, &error);
  const Topology machine;
  const LocalRank local = hosts.local();
  int node = seats.empty() ? node_of_own_gpu(machine) : seats[static_cast<std::size_t>(local.rank)].node;
  MPI_Comm host = MPI_COMM_NULL;
  DAGC_MPI(MPI_Comm_split(comm, hosts.first(), local.rank, &host));
  std::vector<int> nodes(static_cast<std::size_t>(local.ranks));
  DAGC_MPI(MPI_Allgather(&node, 1, MPI_INT, nodes.data(), 1, MPI_INT, host));
  std::vector<unsigned char> given(CPU_SETSIZE);
  for (const int core : own_cores()) given[static_cast<std::size_t>(core)] = 1;
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, given.data(), CPU_SETSIZE, MPI_UNSIGNED_CHAR, MPI_MAX, host));
  MPI_Comm_free(&host);
  const std::vector<int> near = node < 0 ? std::vector<int>() : machine.cores_of(node);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (given[static_cast<std::size_t>(core)] && (node < 0 || std::find(near.begin(), near.end(), core) != near.end()))
      cores.push_back(core);
  const auto mine = nodes.begin() + local.rank;
  const std::size_t part = static_cast<std::size_t>(std::count(nodes.begin(), mine, node));
  const std::size_t parts = static_cast<std::size_t>(std::count(nodes.begin(), nodes.end(), node));
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : share_of(machine.by_core(cores), part, parts)) CPU_SET(core, &set);
  if (CPU_COUNT(&set) == 0 || sched_setaffinity(0, sizeof set, &set) != 0)
    std::fprintf(stderr, "note: a rank stays where it was: it may not use the cores of NUMA node %d\n", node);
}

// Whether ranks of this host are placed so that they slow each other down: on fewer cores than ranks, or one on other threads of
// the cores of another. `all`: numbers of cores, and of the first threads of these, of each rank of the host.
inline bool crowded(const std::vector<std::pair<std::vector<int>, std::vector<int>>>& all) {
  const auto meet = [](const std::vector<int>& a, const std::vector<int>& b) {
    return std::any_of(a.begin(), a.end(), [&](int one) { return std::binary_search(b.begin(), b.end(), one); });
  };
  std::vector<int> every;
  for (const auto& [cores, threads] : all) every.insert(every.end(), cores.begin(), cores.end());
  std::sort(every.begin(), every.end());
  if (std::unique(every.begin(), every.end()) - every.begin() < static_cast<std::ptrdiff_t>(all.size())) return true;
  for (const auto& [cores, threads] : all)
    for (const auto& [others, their_threads] : all)
      if (!meet(cores, others) && meet(threads, their_threads)) return true;
  return false;
}

// The cost of the placement of this rank, where it is bad, and of one that is asked for where ranks of any host are crowded.
// Collective. `lines`: those of all ranks.
inline BindingCost cost_of(MPI_Comm comm, const std::vector<std::string>& lines, int gpu_node, const std::vector<int>& cores) {
  Hosts hosts;
  hosts.find(comm);
  const LocalRank local = hosts.local();
  std::vector<std::pair<std::vector<int>, std::vector<int>>> here;
  for (std::size_t r = 0; r < lines.size(); ++r) {
    if (hosts.within(static_cast<int>(r)) < 0) continue;
    std::istringstream text(lines[r]);
    std::vector<std::string> words;
    for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
    here.emplace_back(numbers_of(words[3]), numbers_of(words[5]));
  }
  int found[2] = {!wanted_binding().empty() && wanted_binding() != "none" && crowded(here), local.ranks};
  DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, found, 2, MPI_INT, MPI_MAX, comm));
  BindingCost out;
  const Topology machine;
  const std::vector<int> near = gpu_node < 0 ? std::vector<int>() : machine.cores_of(gpu_node), nodes = machine.nodes_of(cores);
  if (!near.empty() && std::find(nodes.begin(), nodes.end(), gpu_node) == nodes.end()) binding_cost::copies(cores, near, &out);
  if (found[0]) out.beside = binding_cost::beside(comm, local.rank, found[1]);
  return out;
}

// One line for each rank, on each of them, with a tab between: host, GPU and its node (-1: none), cores, their nodes, the first
// threads of the cores, and what `BindingCost` has. Collective.
inline std::vector<std::string> placement_of(MPI_Comm comm) {
  int ranks = 1, length = 0, gpu = -1;
  DAGC_MPI(MPI_Comm_size(comm, &ranks));
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  DAGC_MPI(MPI_Get_processor_name(host, &length));
#if DAGC_TARGET_CUDA
  if (cudaGetDevice(&gpu) != cudaSuccess) gpu = -1;
#endif
  const Topology machine;
  const std::vector<int> cores = own_cores();
  const std::string mine = std::string(host) + "\t" + std::to_string(gpu) + "\t" + std::to_string(node_of_own_gpu(machine)) + "\t" +
                           list_of(cores) + "\t" + list_of(machine.nodes_of(cores)) + "\t" + list_of(machine.first_threads(cores));
  int size = static_cast<int>(mine.size());
  std::vector<int> sizes(static_cast<std::size_t>(ranks)), places(sizes.size());
  DAGC_MPI(MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm));
  int sum = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    places[r] = sum;
    sum += sizes[r];
  }
  std::string all(static_cast<std::size_t>(sum), ' ');
  DAGC_MPI(MPI_Allgatherv(mine.data(), size, MPI_CHAR, all.data(), sizes.data(), places.data(), MPI_CHAR, comm));
  std::vector<std::string> out;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    out.push_back(all.substr(static_cast<std::size_t>(places[r]), static_cast<std::size_t>(sizes[r])));
  const BindingCost cost = cost_of(comm, out, node_of_own_gpu(machine), cores);
  const double own[3] = {cost.copies, cost.copies_near, cost.beside};
  std::vector<double> every(3 * sizes.size());
  DAGC_MPI(MPI_Allgather(own, 3, MPI_DOUBLE, every.data(), 3, MPI_DOUBLE, comm));
  for (std::size_t i = 0; i < every.size(); ++i) out[i / 3] += "\t" + std::to_string(every[i]);
  return out;
}

}  // namespace dagc
