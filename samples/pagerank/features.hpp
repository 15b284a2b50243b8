// Features of a graph in compressed sparse row form: edges of vertex v are ptr[v] .. ptr[v + 1] - 1.
#pragma once

#include <algorithm>
#include <vector>

// The least number of edges within which 90 % of the vertices that a search reaches lie: over breadth-first searches
// from four vertices, spread evenly, each over 10 000 edges at most.
template <class Pointers, class Ends>
double effective_diameter(Pointers& ptr, Ends& ends, int n) {
  constexpr int kSearches = 4, kEdges = 10'000;
  std::vector<long> reached(1, 0);                        // by distance, over all searches
  std::vector<int> seen(n, -1), queue;
  for (int search = 0; search < kSearches; ++search) {
    int source = static_cast<int>(static_cast<long>(n) * search / kSearches), edges = 0;
    while (source + 1 < n && ptr[source + 1] == ptr[source]) ++source;
    if (seen[source] == search) continue;
    queue.assign(1, source);
    seen[source] = search;
    std::size_t begin = 0;
    for (std::size_t distance = 1; begin < queue.size() && edges < kEdges; ++distance) {
      const std::size_t end = queue.size();
      for (; begin < end && edges < kEdges; ++begin) {
        const int last = ptr[queue[begin] + 1];
        for (int e = ptr[queue[begin]]; e < last && edges < kEdges; ++e, ++edges) {
          const int v = ends[e];
          if (seen[v] == search) continue;
          seen[v] = search;
          queue.push_back(v);
        }
      }
      if (reached.size() <= distance) reached.resize(distance + 1, 0);
      reached[distance] += static_cast<long>(queue.size() - end);
    }
  }
  long all = 0, within = 0;
  for (const long count : reached) all += count;
  for (std::size_t distance = 0; distance < reached.size(); ++distance)
    if (10 * (within += reached[distance]) >= 9 * all) return static_cast<double>(distance);
  return 0;
}

// The percentile of the degrees of up to 512 vertices, spread evenly.
template <class Pointers>
double degree_percentile(Pointers& ptr, int n, int percent) {
  constexpr int kVertices = 512;
  std::vector<int> degrees;
  const int step = std::max(1, n / kVertices);
  for (int v = 0; v < n; v += step) degrees.push_back(ptr[v + 1] - ptr[v]);
  if (degrees.empty()) return 0;
  const auto at = degrees.begin() + static_cast<long>(degrees.size() - 1) * percent / 100;
  std::nth_element(degrees.begin(), at, degrees.end());
  return *at;
}
