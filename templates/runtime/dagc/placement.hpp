// The device of each op of a program, chosen so that the program takes the least time, transfers included: on the host
// and the K - 1 GPUs of a rank. dagc/choice/placement.py calls it from Python.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace dagc {
namespace placement {

using Side = unsigned char;  // the memory that an op works in: that of the host, of the first GPU, of the second one ...

constexpr Side on_host = 0, on_device = 1;
constexpr Side gpu(int unit) { return static_cast<Side>(1 + unit); }

constexpr int setup = -1;  // the producer of the initial values
constexpr double never = std::numeric_limits<double>::infinity();

using Sides = unsigned;  // a set: a bit for each
constexpr Sides only(int side) { return 1u << side; }

// A value: the result of one write of an array, or of the set-up. It is moved at most once to each side.
template <int K>
struct Value {
  int producer;        // an op, or `setup`
  const int* readers;  // `n_readers` ops; one that occurs twice counts once
  int n_readers;
  double moves[K][K];  // seconds of a transfer from one side to another, finite
  Sides begins;        // where the set-up leaves it: at least on one side
  Sides ends;          // where it must be at the end of the program

  // Seconds of the transfers to the sides where it is `wanted` and not present.
  double seconds(Sides there, Sides wanted) const {
    double sum = 0;
    for (int to = 0; to < K; ++to) {
      if (((wanted & ~there) >> to & 1) == 0) continue;
      double least = never;
      for (int from = 0; from < K; ++from)
        if (there >> from & 1) least = std::min(least, moves[from][to]);
      sum += least;
    }
    return sum;
  }
};

// Seconds of an op on each side: `never` where it cannot run. Not negative, not all `never`.
template <int K>
struct Op {
  double seconds[K];
};

template <int K>
struct Problem {
  std::vector<Op<K>> ops;
  std::vector<Value<K>> values;
};

// Seconds of the transfers of a value between the ops placed so far, the first `placed`.
template <int K>
double moved(const Value<K>& v, const Side* sides, int placed) {
  if (v.producer >= placed) return 0;
  Sides wanted = v.ends;
  for (int r = 0; r < v.n_readers; ++r)
    if (v.readers[r] < placed) wanted |= only(sides[v.readers[r]]);
  return v.seconds(v.producer == setup ? v.begins : only(sides[v.producer]), wanted);
}

// Seconds of a placement.
template <int K>
double cost(const Problem<K>& problem, const Side* sides) {
  const int n = static_cast<int>(problem.ops.size());
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += problem.ops[static_cast<std::size_t>(i)].seconds[sides[i]];
  for (const Value<K>& v : problem.values) sum += moved(v, sides, n);
  return sum;
}

// An op of a chain. link[a][b]: seconds of the transfers from the op before, on side a, to this one, on side b.
template <int K>
struct Step {
  double seconds[K];
  double link[K][K];
  Side before[K];  // the best side of the op before, for each side of this one: filled in by `place_chain`
};

// Places a chain of n >= 1 ops: the least seconds up to an op on each side follow from those up to the op before (the
// recurrences of MLCD, section III-B, on any number of sides). Allocates nothing. Returns the least seconds.
template <int K>
double place_chain(Step<K>* steps, int n, Side* sides) {
  double least[K];
  std::copy_n(steps[0].seconds, K, least);
  for (int i = 1; i < n; ++i) {
    Step<K>& s = steps[i];
    double next[K];
    for (int to = 0; to < K; ++to) {
      next[to] = least[0] + s.link[0][to];
      s.before[to] = 0;
      for (int from = 1; from < K; ++from) {
        const double there = least[from] + s.link[from][to];
        s.before[to] = there < next[to] ? static_cast<Side>(from) : s.before[to];
        next[to] = there < next[to] ? there : next[to];
      }
      next[to] += s.seconds[to];
    }
    std::copy_n(next, K, least);
  }
  const double* best = std::min_element(least, least + K);
  sides[n - 1] = static_cast<Side>(best - least);
  for (int i = n - 1; i > 0; --i) sides[i - 1] = steps[i].before[sides[i]];
  return *best;
}

// Whether the problem is a chain: each transfer depends on one op, or on two that follow each other. If so, writes its
// steps; what depends on one op is in the seconds of that.
template <int K>
bool as_chain(const Problem<K>& problem, Step<K>* steps) {
  const int n = static_cast<int>(problem.ops.size());
  for (int i = 0; i < n; ++i) {
    steps[i] = {};
    std::copy_n(problem.ops[static_cast<std::size_t>(i)].seconds, K, steps[i].seconds);
  }
  for (const Value<K>& v : problem.values) {
    const bool given = v.producer == setup;
    if (given && v.begins == only(K) - 1) continue;
    const int reader = v.n_readers > 0 ? v.readers[0] : setup;
    if (std::any_of(v.readers, v.readers + v.n_readers, [&](int r) { return r != reader; })) return false;
    if (!given && reader != setup && reader != v.producer && reader != v.producer + 1) return false;
    const bool pair = !given && reader == v.producer + 1;
    Step<K>& step = steps[reader != setup ? reader : given ? 0 : v.producer];
    for (int to = 0; to < K; ++to) {
      const Sides wanted = v.ends | (reader != setup ? only(to) : 0u);
      if (!pair) step.seconds[to] += v.seconds(given ? v.begins : only(to), wanted);
      for (int from = 0; from < (pair ? K : 0); ++from) step.link[from][to] += v.seconds(only(from), wanted);
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

// Places any graph on two sides: the ops in the source's part run on the host. The capacity of an edge is the cost if it
// leaves that part.
inline void place_cut(const Problem<2>& problem, Side* sides) {
  const int n = static_cast<int>(problem.ops.size()), source = n, sink = n + 1;
  std::size_t readers = 0;
  for (const Value<2>& v : problem.values) readers += static_cast<std::size_t>(v.n_readers);
  const int values = static_cast<int>(problem.values.size());
  Network network(n + 2 + 2 * values, problem.ops.size() + 2 * problem.values.size() + 2 * readers);
  for (int i = 0; i < n; ++i) {
    const double* s = problem.ops[static_cast<std::size_t>(i)].seconds;
    const double both = std::min(s[on_host], s[on_device]);
    if (s[on_device] > both) network.edge(source, i, s[on_device] - both);
    if (s[on_host] > both) network.edge(i, sink, s[on_host] - both);
  }
  for (int k = 0; k < values; ++k) {
    const Value<2>& v = problem.values[static_cast<std::size_t>(k)];
    const int to_device = n + 2 + k, to_host = n + 2 + values + k;  // in the part of the side on which it is needed
    const double there = v.moves[on_host][on_device], back = v.moves[on_device][on_host];
    const bool given = v.producer == setup;
    if (!(given && (v.begins & only(on_device)))) {
      const int producer = given ? source : v.producer;
      if (v.ends & only(on_device)) {
        network.edge(producer, sink, there);
      } else if (v.n_readers > 0) {
        network.edge(producer, to_device, there);
        for (int r = 0; r < v.n_readers; ++r) network.edge(to_device, v.readers[r], never);
      }
    }
    if (!(given && (v.begins & only(on_host)))) {
      const int producer = given ? sink : v.producer;
      if (v.ends & only(on_host)) {
        network.edge(source, producer, back);
      } else if (v.n_readers > 0) {
        network.edge(to_host, producer, back);
        for (int r = 0; r < v.n_readers; ++r) network.edge(v.readers[r], to_host, never);
      }
    }
  }
  std::vector<bool> host;
  network.cut(source, sink, &host);
  for (int i = 0; i < n; ++i) sides[i] = host[static_cast<std::size_t>(i)] ? on_host : on_device;
}

// Changes one op at a time while that saves something. Returns the seconds.
template <int K>
double improve(const Problem<K>& problem, Side* sides) {
  double best = cost(problem, sides);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i < problem.ops.size(); ++i)
      for (int to = 0; to < K; ++to) {
        const Side before = sides[i];
        sides[i] = static_cast<Side>(to);
        const double here = cost(problem, sides);
        better |= here < best;
        if (here < best) best = here;
        else sides[i] = before;
      }
  }
  return best;
}

// The best found: no placement takes less than `bound`.
struct Found {
  double seconds, bound;
};

// Places any graph on any number of sides, which is NP-hard from three on: depth first over the ops in order, from the
// best placement that single changes reach, without parts that cannot be better. After `nodes` parts, it ends.
template <int K>
Found place_search(const Problem<K>& problem, int nodes, Side* sides) {
  const std::size_t n = problem.ops.size();
  std::vector<std::vector<const Value<K>*>> touched(n);  // the values that each op writes or reads
  for (const Value<K>& v : problem.values) {
    if (v.producer != setup) touched[static_cast<std::size_t>(v.producer)].push_back(&v);
    for (int r = 0; r < v.n_readers; ++r) touched[static_cast<std::size_t>(v.readers[r])].push_back(&v);
  }
  std::vector<double> least(n + 1, 0);  // of the ops from one on
  for (std::size_t i = n; i-- > 0;) {
    least[i] = least[i + 1] + *std::min_element(problem.ops[i].seconds, problem.ops[i].seconds + K);
    std::sort(touched[i].begin(), touched[i].end());
    touched[i].erase(std::unique(touched[i].begin(), touched[i].end()), touched[i].end());
  }
  double best = never;
  std::vector<Side> here(n);
  for (int start = -1; start < K; ++start) {  // each op on its fastest side, then all on one
    for (std::size_t i = 0; i < n; ++i) {
      const double* s = problem.ops[i].seconds;
      here[i] = static_cast<Side>(start >= 0 && s[start] < never ? start : std::min_element(s, s + K) - s);
    }
    if (const double found = improve(problem, here.data()); found < best) {
      best = found;
      std::copy(here.begin(), here.end(), sides);
    }
  }
  struct Part {
    double spent;
    std::size_t placed;  // ops, of which this is the side of the last
    Side side;
  };
  double begin = 0;
  for (const Value<K>& v : problem.values) begin += moved(v, sides, 0);
  std::vector<Part> pending{{begin, 0, 0}};
  for (; nodes > 0 && !pending.empty() && best > least[0]; --nodes) {
    const Part part = pending.back();
    const std::size_t i = part.placed;
    pending.pop_back();
    if (part.spent + least[i] >= best) continue;
    if (i > 0) here[i - 1] = part.side;
    if (i == n) {
      best = part.spent;
      std::copy(here.begin(), here.end(), sides);
      continue;
    }
    Part steps[K];
    for (int to = 0; to < K; ++to) {
      const int at = static_cast<int>(i);
      double spent = part.spent + problem.ops[i].seconds[to];
      here[i] = static_cast<Side>(to);
      for (const Value<K>* v : touched[i]) spent += moved(*v, here.data(), at + 1) - moved(*v, here.data(), at);
      steps[to] = {spent, i + 1, here[i]};
    }
    std::sort(steps, steps + K, [](const Part& a, const Part& b) { return a.spent > b.spent; });
    pending.insert(pending.end(), steps, steps + K);
  }
  double left = never;
  for (const Part& part : pending) left = std::min(left, part.spent + least[part.placed]);
  best = cost(problem, sides);
  return {best, std::min(best, std::max(left, least[0]))};
}

constexpr int search_nodes = 20000;  // about 10 ms

// The best placement; of a graph that is no chain, on three sides and more, the best that a search finds.
template <int K>
Found place(const Problem<K>& problem, std::vector<Side>* sides, int nodes = search_nodes) {
  std::vector<Step<K>> steps(problem.ops.size());
  sides->assign(problem.ops.size(), on_host);
  if (as_chain(problem, steps.data())) {
    const double seconds = place_chain(steps.data(), static_cast<int>(steps.size()), sides->data());
    return {seconds, seconds};
  }
  if constexpr (K == 2) {
    place_cut(problem, sides->data());
    const double seconds = cost(problem, sides->data());
    return {seconds, seconds};
  } else {
    return place_search(problem, nodes, sides->data());
  }
}

}  // namespace placement
}  // namespace dagc
