// Edges of a graph that others imply: the transitive reduction of a graph without cycles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dagc {

using GraphEdge = std::pair<std::size_t, std::size_t>;  // from, to

// The numbers of the edges from u to w where a path from u to w has other nodes. `n`: nodes; of equal edges, none counts.
// Takes n^2 bits.
inline std::vector<std::size_t> redundant_edges(std::size_t n, const std::vector<GraphEdge>& edges) {
  const std::size_t words = (n + 63) / 64;
  std::vector<std::vector<std::size_t>> into(n), out(n);
  std::vector<std::size_t> missing(n), ready;
  for (const GraphEdge& e : edges) {
    into[e.second].push_back(e.first);
    out[e.first].push_back(e.second);
    ++missing[e.second];
  }
  for (std::size_t v = 0; v < n; ++v)
    if (missing[v] == 0) ready.push_back(v);
  std::vector<std::uint64_t> before(n * words), beyond(n * words);  // what precedes a node: at all; by two edges or more
  while (!ready.empty()) {
    const std::size_t v = ready.back();
    ready.pop_back();
    for (std::size_t u : into[v]) {
      for (std::size_t k = 0; k < words; ++k) beyond[v * words + k] |= before[u * words + k];
      before[v * words + u / 64] |= std::uint64_t{1} << u % 64;
    }
    for (std::size_t k = 0; k < words; ++k) before[v * words + k] |= beyond[v * words + k];
    for (std::size_t w : out[v])
      if (--missing[w] == 0) ready.push_back(w);
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (beyond[edges[i].second * words + edges[i].first / 64] >> edges[i].first % 64 & 1) found.push_back(i);
  return found;
}

}  // namespace dagc
