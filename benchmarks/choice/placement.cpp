// Times of placing a chain, and graphs, in nanoseconds a call: placement.hpp, and what it is compared with. Written for
// placement.py, which has the tables.
#include "dagc/placement.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <utility>

using namespace dagc::placement;

namespace {

constexpr int kProblems = 1024;  // in turn: branches and caches see other numbers at each call
constexpr int kRounds = 9;       // of which the median counts

std::mt19937_64 engine(17);

double draw(double mean) { return std::exponential_distribution<double>(1 / mean)(engine); }
int below(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }

// A chain as the paper has it: data and results on the host, a transfer between any two ops.
struct Chain {
  std::vector<Step<2>> steps;
  Problem<2> problem;
  std::vector<std::vector<int>> readers;
};

Chain chain(int n) {
  Chain c;
  c.steps.resize(static_cast<std::size_t>(n));
  c.problem.ops.resize(c.steps.size());
  c.readers.resize(c.steps.size() + 1);
  for (int i = 0; i <= n; ++i) {
    const double transfer = draw(1e-4);
    auto& readers = c.readers[static_cast<std::size_t>(i)];
    if (i < n) readers = {i};
    c.problem.values.push_back({i - 1, readers.data(), static_cast<int>(readers.size()), {{0, transfer}, {transfer, 0}}, only(on_host), i == n ? only(on_host) : 0u});
    if (i < n) c.problem.ops[static_cast<std::size_t>(i)] = {{draw(1e-3), draw(5e-4)}};
  }
  if (!as_chain(c.problem, c.steps.data())) std::abort();
  return c;
}

// The graph of the chain (figure 3 of the paper): a start, two nodes an op, an end, in topological order.
struct Graph {
  struct Edge {
    int to;
    double seconds;
  };
  std::vector<std::vector<Edge>> out;
};

Graph graph(const std::vector<Step<2>>& steps) {
  const int n = static_cast<int>(steps.size());
  Graph g;
  g.out.resize(2 * steps.size() + 2);
  for (int b = 0; b < 2; ++b) g.out[0].push_back({1 + b, steps[0].seconds[b]});
  for (int i = 1; i < n; ++i)
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 2; ++b) {
        const Step<2>& s = steps[static_cast<std::size_t>(i)];
        g.out[static_cast<std::size_t>(2 * i - 1 + a)].push_back({2 * i + 1 + b, s.link[a][b] + s.seconds[b]});
      }
  for (int a = 0; a < 2; ++a) g.out[static_cast<std::size_t>(2 * n - 1 + a)].push_back({2 * n + 1, 0});
  return g;
}

void follow(const std::vector<int>& from, Side* sides) {
  for (int node = from.back(); node > 0; node = from[static_cast<std::size_t>(node)]) sides[(node - 1) / 2] = static_cast<Side>((node - 1) % 2);
}

// The shortest path in an acyclic graph: every edge once, in topological order.
double shortest_path(const Graph& g, Side* sides) {
  std::vector<double> least(g.out.size(), never);
  std::vector<int> from(g.out.size(), -1);
  least[0] = 0;
  for (std::size_t node = 0; node < g.out.size(); ++node)
    for (const Graph::Edge& e : g.out[node]) {
      const double there = least[node] + e.seconds;
      if (there < least[static_cast<std::size_t>(e.to)]) least[static_cast<std::size_t>(e.to)] = there, from[static_cast<std::size_t>(e.to)] = static_cast<int>(node);
    }
  follow(from, sides);
  return least.back();
}

// Dijkstra's algorithm with a heap.
double dijkstra(const Graph& g, Side* sides) {
  using Entry = std::pair<double, int>;
  std::vector<double> least(g.out.size(), never);
  std::vector<int> from(g.out.size(), -1);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
  least[0] = 0;
  queue.push({0, 0});
  while (!queue.empty()) {
    const auto [seconds, node] = queue.top();
    queue.pop();
    if (seconds > least[static_cast<std::size_t>(node)]) continue;
    for (const Graph::Edge& e : g.out[static_cast<std::size_t>(node)])
      if (seconds + e.seconds < least[static_cast<std::size_t>(e.to)]) {
        least[static_cast<std::size_t>(e.to)] = seconds + e.seconds;
        from[static_cast<std::size_t>(e.to)] = node;
        queue.push({seconds + e.seconds, e.to});
      }
  }
  follow(from, sides);
  return least.back();
}

// Layers of ops, each of which reads two values of the three layers before; a value is read by about two ops.
struct Layers {
  Problem<2> problem;
  std::vector<std::vector<int>> readers;
};

Layers layers(int n, int width) {
  Layers l;
  l.problem.ops.resize(static_cast<std::size_t>(n));
  l.readers.resize(static_cast<std::size_t>(n + width));  // the first `width` values are given
  for (int i = 0; i < n; ++i) {
    l.problem.ops[static_cast<std::size_t>(i)] = {{draw(1e-3), draw(5e-4)}};
    const int values = width + i / width * width, first = std::max(0, values - 3 * width);
    for (int k = 0; k < 2; ++k) l.readers[static_cast<std::size_t>(first + below(values - first))].push_back(i);
  }
  for (int v = 0; v < n + width; ++v) {
    const auto& readers = l.readers[static_cast<std::size_t>(v)];
    l.problem.values.push_back({v < width ? setup : v - width, readers.data(), static_cast<int>(readers.size()), {{0, draw(2e-4)}, {draw(2e-4), 0}}, only(on_host), readers.empty() ? only(on_host) : 0u});
  }
  return l;
}

// Median nanoseconds of work(problem number).
template <class Work>
double nanoseconds(Work work) {
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < kProblems; ++k) work(static_cast<std::size_t>(k));
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    if (round > 0) times.push_back(took.count() / kProblems);  // the first warms up
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

volatile double sink;

void row(const char* what, int n, double ns) { std::printf("%s\t%d\t%.1f\n", what, n, ns); }

void same(double a, double b) {
  if (!(a - b < 1e-12 && b - a < 1e-12)) {
    std::fprintf(stderr, "two ways differ: %.17g %.17g\n", a, b);
    std::exit(1);
  }
}

void chains(int n) {
  std::vector<Chain> all;
  std::vector<Graph> graphs;
  for (int k = 0; k < kProblems; ++k) all.push_back(chain(n));
  for (const Chain& c : all) graphs.push_back(graph(c.steps));
  std::vector<Side> sides(static_cast<std::size_t>(n));
  for (std::size_t k = 0; k < all.size(); ++k) {
    const double best = place_chain(all[k].steps.data(), n, sides.data());
    same(best, cost(all[k].problem, sides.data()));
    same(best, shortest_path(graphs[k], sides.data()));
    same(best, cost(all[k].problem, sides.data()));
    same(best, dijkstra(graphs[k], sides.data()));
  }
  row("chain, two recurrences", n, nanoseconds([&](std::size_t k) { sink = place_chain(all[k].steps.data(), n, sides.data()); }));
  row("chain, recognized and placed", n, nanoseconds([&](std::size_t k) { sink = place(all[k].problem, &sides).seconds; }));
  row("chain, shortest path", n, nanoseconds([&](std::size_t k) { sink = shortest_path(graphs[k], sides.data()); }));
  row("chain, Dijkstra", n, nanoseconds([&](std::size_t k) { sink = dijkstra(graphs[k], sides.data()); }));
  row("chain, minimum cut", n, nanoseconds([&](std::size_t k) { place_cut(all[k].problem, sides.data()); }));
}

void graphs(int n) {
  std::vector<Layers> all;
  for (int k = 0; k < kProblems; ++k) all.push_back(layers(n, 4));
  std::vector<Side> sides(static_cast<std::size_t>(n));
  row("graph, minimum cut", n, nanoseconds([&](std::size_t k) { place_cut(all[k].problem, sides.data()); }));
  std::vector<double> each(all.size(), never);  // the least of some calls: what is left is the problem's
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto begin = std::chrono::steady_clock::now();
      place_cut(all[k].problem, sides.data());
      each[k] = std::min(each[k], std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
    }
  std::sort(each.begin(), each.end());
  row("graph, minimum cut, 99th percentile", n, each[each.size() * 99 / 100]);
  row("graph, minimum cut, longest", n, each.back());
}

}  // namespace

int main() {
  for (const int n : {4, 10, 100}) chains(n);
  for (const int n : {10, 100, 1000}) graphs(n);
}
