// The placement of each op of a program, on the host or on the device, that minimises the time of the program including
// transfers. The Python counterpart, which also has more devices and a bounded search: dagc/choice/placement.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace dagc {
namespace placement {

enum Side : unsigned char { on_host, on_device };

constexpr int setup = -1;  // the producer of the initial values
constexpr double never = std::numeric_limits<double>::infinity();

// A value: the result of one write of an array, or of the set-up. It is moved at most once to each side.
struct Value {
  int producer;        // an op, or `setup`
  const int* readers;  // `n_readers` ops; one that occurs twice counts once
  int n_readers;
  double to_device, to_host;  // seconds of a transfer, finite
  bool begins_on_host;        // of what the set-up gives: at least one of these
  bool begins_on_device;
  bool ends_on_host;  // the value must be there at the end of the program
};

// Seconds of an op on each side: `never` where it cannot run. Not negative, not both `never`.
struct Op {
  double seconds[2];
};

struct Problem {
  std::vector<Op> ops;
  std::vector<Value> values;
};

// Whether a transfer to `to` is needed: the value is not there, and is needed there. `side(op)`: the side of an op.
template <class SideOf>
bool moved(const Value& v, Side to, SideOf side) {
  const bool there = v.producer == setup ? (to == on_host ? v.begins_on_host : v.begins_on_device) : side(v.producer) == to;
  if (there) return false;
  if (to == on_host && v.ends_on_host) return true;
  return std::any_of(v.readers, v.readers + v.n_readers, [&](int r) { return side(r) == to; });
}

// Seconds of a placement.
inline double cost(const Problem& problem, const Side* sides) {
  const auto side = [&](int op) { return sides[op]; };
  double sum = 0;
  for (std::size_t i = 0; i < problem.ops.size(); ++i) sum += problem.ops[i].seconds[sides[i]];
  for (const Value& v : problem.values) {
    if (moved(v, on_device, side)) sum += v.to_device;
    if (moved(v, on_host, side)) sum += v.to_host;
  }
  return sum;
}

// An op of a chain. link[a][b]: seconds of the transfers from the op before, on side a, to this one, on side b.
struct Step {
  double seconds[2];
  double link[2][2];
};

// Places a chain of n >= 1 ops: the least seconds up to an op on each side follow from those up to the op before (the
// recurrences of MLCD, section III-B). Allocates nothing: until the end, sides[i] has for either side of op i the side
// of op i-1, a bit each. Returns the least seconds.
inline double place_chain(const Step* steps, int n, Side* sides) {
  double host = steps[0].seconds[on_host], device = steps[0].seconds[on_device];
  for (int i = 1; i < n; ++i) {
    const Step& s = steps[i];
    const double host_stays = host + s.link[on_host][on_host], host_comes = device + s.link[on_device][on_host];
    const double device_comes = host + s.link[on_host][on_device], device_stays = device + s.link[on_device][on_device];
    sides[i] = static_cast<Side>((host_comes < host_stays) | (device_stays < device_comes) << 1);
    host = s.seconds[on_host] + (host_comes < host_stays ? host_comes : host_stays);
    device = s.seconds[on_device] + (device_stays < device_comes ? device_stays : device_comes);
  }
  Side side = device < host ? on_device : on_host;
  for (int i = n - 1; i > 0; --i) {
    const Side before = static_cast<Side>(sides[i] >> side & 1);
    sides[i] = side;
    side = before;
  }
  sides[0] = side;
  return std::min(host, device);
}

// Whether the problem is a chain: each transfer depends on one op, or on two that follow each other. If so, writes its
// steps; what depends on one op is in the seconds of that.
inline bool as_chain(const Problem& problem, Step* steps) {
  const int n = static_cast<int>(problem.ops.size());
  for (int i = 0; i < n; ++i) {
    const double* s = problem.ops[static_cast<std::size_t>(i)].seconds;
    steps[i] = {{s[on_host], s[on_device]}, {{0, 0}, {0, 0}}};
  }
  for (const Value& v : problem.values) {
    const int reader = v.n_readers > 0 ? v.readers[0] : setup;
    for (int r = 1; r < v.n_readers; ++r)
      if (v.readers[r] != reader && !(v.producer == setup && v.begins_on_host && v.begins_on_device)) return false;
    const double end = v.ends_on_host ? v.to_host : 0;  // where it was not on the host before
    if (v.producer == setup && v.begins_on_host) {
      if (reader != setup && !v.begins_on_device) steps[reader].seconds[on_device] += v.to_device;
    } else if (v.producer == setup) {
      steps[std::max(reader, 0)].seconds[on_host] += reader != setup ? v.to_host : end;
      steps[std::max(reader, 0)].seconds[on_device] += end;
    } else if (reader == setup) {
      steps[v.producer].seconds[on_device] += end;
    } else if (reader == v.producer + 1) {
      steps[reader].link[on_host][on_device] += v.to_device;
      steps[reader].link[on_device][on_host] += v.to_host;
      steps[reader].link[on_device][on_device] += end;
    } else {
      return false;
    }
  }
  return n > 0;
}

// The minimum cut of a network with capacities in double precision (Dinic 1970): the nodes of the source's part.
class Network {
 public:
  Network(int nodes, std::size_t edges) : first_(static_cast<std::size_t>(nodes), -1), level_(first_), next_(first_) {
    edges_.reserve(2 * edges);
    queue_.reserve(first_.size());
  }

  void edge(int from, int to, double capacity) {
    add(from, to, capacity);
    add(to, from, 0);
  }

  // `in_part[node]` is true on return for the nodes that the source still reaches: the smallest part.
  void cut(int source, int sink, std::vector<bool>* in_part) {
    while (levels(source, sink)) {
      next_ = first_;
      push(source, sink, never);
    }
    in_part->assign(first_.size(), false);
    for (std::size_t i = 0; i < first_.size(); ++i) (*in_part)[i] = level_[i] >= 0;
  }

 private:
  struct Edge {
    int to, next;
    double left;
  };

  Edge& at(int edge) { return edges_[static_cast<std::size_t>(edge)]; }
  int& level(int node) { return level_[static_cast<std::size_t>(node)]; }

  void add(int from, int to, double capacity) {
    int& first = first_[static_cast<std::size_t>(from)];
    edges_.push_back({to, first, capacity});
    first = static_cast<int>(edges_.size()) - 1;
  }

  // Distances from the source in the residual network. Returns whether the sink is reached; if so, nodes beyond it may
  // have none.
  bool levels(int source, int sink) {
    std::fill(level_.begin(), level_.end(), -1);
    queue_.assign(1, source);
    level(source) = 0;
    for (std::size_t i = 0; i < queue_.size(); ++i)
      for (int e = first_[static_cast<std::size_t>(queue_[i])]; e >= 0; e = at(e).next)
        if (at(e).left > 0 && level(at(e).to) < 0) {
          level(at(e).to) = level(queue_[i]) + 1;
          if (at(e).to == sink) return true;
          queue_.push_back(at(e).to);
        }
    return false;
  }

  // Pushes up to `most` along shortest paths to the sink. Returns the amount.
  double push(int node, int sink, double most) {
    if (node == sink) return most;
    double pushed = 0;
    for (int& e = next_[static_cast<std::size_t>(node)]; e >= 0; e = at(e).next) {
      if (!(at(e).left > 0) || level(at(e).to) != level(node) + 1) continue;
      const double more = push(at(e).to, sink, std::min(most - pushed, at(e).left));
      at(e).left -= more;
      at(e ^ 1).left += more;
      pushed += more;
      if (!(pushed < most)) return pushed;  // this edge may have residual capacity
    }
    return pushed;
  }

  std::vector<int> first_, level_, next_;  // of each node: its first edge, its distance, its next edge to try
  std::vector<Edge> edges_;                // an edge and its reverse are neighbours
  std::vector<int> queue_;
};

// Places any graph: the ops in the source's part run on the host. The capacity of an edge is the cost if it leaves that
// part.
inline void place_cut(const Problem& problem, Side* sides) {
  const int n = static_cast<int>(problem.ops.size()), source = n, sink = n + 1;
  std::size_t readers = 0;
  for (const Value& v : problem.values) readers += static_cast<std::size_t>(v.n_readers);
  const int values = static_cast<int>(problem.values.size());
  Network network(n + 2 + 2 * values, problem.ops.size() + 2 * problem.values.size() + 2 * readers);
  for (int i = 0; i < n; ++i) {
    const double* s = problem.ops[static_cast<std::size_t>(i)].seconds;
    const double both = std::min(s[on_host], s[on_device]);
    if (s[on_device] > both) network.edge(source, i, s[on_device] - both);
    if (s[on_host] > both) network.edge(i, sink, s[on_host] - both);
  }
  for (int k = 0; k < values; ++k) {
    const Value& v = problem.values[static_cast<std::size_t>(k)];
    const int to_device = n + 2 + k, to_host = n + 2 + values + k;  // in the part of the side on which it is needed
    const bool given = v.producer == setup;
    if (v.n_readers > 0 && !(given && v.begins_on_device)) {
      network.edge(given ? source : v.producer, to_device, v.to_device);
      for (int r = 0; r < v.n_readers; ++r) network.edge(to_device, v.readers[r], never);
    }
    if (given && v.begins_on_host) continue;
    const int producer = given ? sink : v.producer;
    if (v.ends_on_host) {
      network.edge(source, producer, v.to_host);
    } else if (v.n_readers > 0) {
      network.edge(to_host, producer, v.to_host);
      for (int r = 0; r < v.n_readers; ++r) network.edge(v.readers[r], to_host, never);
    }
  }
  std::vector<bool> host;
  network.cut(source, sink, &host);
  for (int i = 0; i < n; ++i) sides[i] = host[static_cast<std::size_t>(i)] ? on_host : on_device;
}

// The best placement. Returns its seconds.
inline double place(const Problem& problem, std::vector<Side>* sides) {
  std::vector<Step> steps(problem.ops.size());
  sides->assign(problem.ops.size(), on_host);
  if (as_chain(problem, steps.data())) return place_chain(steps.data(), static_cast<int>(steps.size()), sides->data());
  place_cut(problem, sides->data());
  return cost(problem, sides->data());
}

}  // namespace placement
}  // namespace dagc
