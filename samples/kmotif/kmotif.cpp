// Motifs of 3 and 4 vertices on the CPU. Graphs in compressed sparse row form, without directions, neighbours sorted.
#include "motifs.hpp"

#include <algorithm>
#include <vector>

namespace {

// What one thread has counted, added up in the end.
struct Counted {
  Sums sums{};
  void add_to(Sums& all) const {
    for (int i = 0; i < kSums; ++i) {
#pragma omp atomic
      all.of[i] += sums.of[i];
    }
  }
};

}  // namespace

// Each connected induced subgraph once (ESU: Wernicke, 2006). Vertices after the root are larger than it; a vertex that
// is a neighbour of an earlier one is considered with that one only.
void count_each(std::uint64_t* counts, const int* ptr, const int* ends, int k, int n, int) {
  std::fill(counts, counts + 6, 0);
#pragma omp parallel
  {
    std::uint64_t mine[6] = {};
    std::vector<unsigned char> near(n, 0);                // bits: neighbour of the first, second, third vertex
    std::vector<int> next;
#pragma omp for schedule(dynamic, 4)
    for (int v = 0; v < n; ++v) {
      const auto mark = [&](int of, int bit) {
        for (int e = ptr[of]; e < ptr[of + 1]; ++e) near[ends[e]] ^= static_cast<unsigned char>(bit);
      };
      mark(v, 1);
      const int* last = ends + ptr[v + 1];
      for (const int* second = std::upper_bound(ends + ptr[v], last, v); second < last; ++second) {
        const int u = *second;
        mark(u, 2);
        next.assign(second + 1, last);
        for (int e = ptr[u]; e < ptr[u + 1]; ++e)
          if (ends[e] > v && !(near[ends[e]] & 1)) next.push_back(ends[e]);
        for (std::size_t i = 0; i < next.size(); ++i) {
          const int w = next[i], of_w = near[w] & 3;
          if (k == 3) {
            ++mine[of_w == 3];
            continue;
          }
          mark(w, 4);
          for (std::size_t j = i + 1; j < next.size(); ++j) ++mine[motif_of(of_w, near[next[j]])];
          for (int e = ptr[w]; e < ptr[w + 1]; ++e) {
            const int x = ends[e];
            if (x > v && x != u && near[x] == 4) ++mine[motif_of(of_w, 4)];
          }
          mark(w, 4);
        }
        mark(u, 2);
      }
      mark(v, 1);
    }
    for (int i = 0; i < 6; ++i) {
#pragma omp atomic
      counts[i] += mine[i];
    }
  }
}

// Triangles and cliques along edges that lead to the vertex of more neighbours; cycles by their largest vertex (Chiba and
// Nishizeki, 1985); all else by formulas (PGD: Ahmed et al., 2015).
void count_by_formulas(std::uint64_t* counts, const int* ptr, const int* ends, int k, int n, int m, int* out_ptr, int* out,
                       int* triangles) {
  const auto degree = [&](int v) { return static_cast<std::uint64_t>(ptr[v + 1] - ptr[v]); };
  const auto above = [&](int u, int v) { return degree(u) > degree(v) || (degree(u) == degree(v) && u > v); };
  Sums all{};
  out_ptr[0] = 0;
#pragma omp parallel
  {
    Counted mine;
    std::uint64_t* sum = mine.sums.of;
    std::vector<int> seen(n, -1), both(n, -1), common;
    std::vector<unsigned> paths(k == 4 ? n : 0, 0);
#pragma omp for schedule(static)
    for (int v = 0; v < n; ++v) {
      const std::uint64_t d = degree(v);
      sum[kWedges] += d * (d - 1) / 2;
      sum[kStars] += d < 3 ? 0 : d * (d - 1) * (d - 2) / 6;
      int count = 0;
      for (int e = ptr[v]; e < ptr[v + 1]; ++e) count += above(ends[e], v);
      out_ptr[v + 1] = count;
    }
#pragma omp single
    for (int v = 0; v < n; ++v) out_ptr[v + 1] += out_ptr[v];
#pragma omp for schedule(static)
    for (int v = 0; v < n; ++v) {
      int to = out_ptr[v];
      for (int e = ptr[v]; e < ptr[v + 1]; ++e)
        if (above(ends[e], v)) {
          sum[kPaths] += (degree(v) - 1) * (degree(ends[e]) - 1);
          triangles[to] = 0;
          out[to++] = ends[e];
        }
    }
#pragma omp for schedule(dynamic, 16)
    for (int v = 0; v < n; ++v) {
      for (int e = out_ptr[v]; e < out_ptr[v + 1]; ++e) seen[out[e]] = e;
      for (int e = out_ptr[v]; e < out_ptr[v + 1]; ++e) {
        const int u = out[e];
        int found = 0;
        common.clear();
        for (int f = out_ptr[u]; f < out_ptr[u + 1]; ++f) {
          const int w = out[f], g = seen[w];
          if (g < out_ptr[v]) continue;                   // of another vertex, or none
          ++found;
          if (k == 3) continue;
          sum[kPaws] += degree(v) + degree(u) + degree(w) - 6;
#pragma omp atomic
          ++triangles[f];
#pragma omp atomic
          ++triangles[g];
          common.push_back(w);
          both[w] = e;
        }
        sum[kTriangles] += static_cast<std::uint64_t>(found);
        if (k == 3 || found == 0) continue;
#pragma omp atomic
        triangles[e] += found;
        for (const int w : common)
          for (int f = out_ptr[w]; f < out_ptr[w + 1]; ++f) sum[kCliques] += both[out[f]] == e;
      }
      for (int e = out_ptr[v]; e < out_ptr[v + 1]; ++e) seen[out[e]] = -1;
    }
    if (k == 4) {
#pragma omp for schedule(dynamic, 16)
      for (int v = 0; v < n; ++v)
        for (const bool count : {true, false})            // then clear
          for (int e = ptr[v]; e < ptr[v + 1]; ++e) {
            const int u = ends[e];
            if (!above(v, u)) continue;
            for (int f = ptr[u]; f < ptr[u + 1]; ++f) {
              if (!above(v, ends[f])) continue;
              if (count) sum[kCycles] += paths[ends[f]]++; else paths[ends[f]] = 0;
            }
          }
#pragma omp for schedule(static)
      for (int e = 0; e < m / 2; ++e) {
        const auto t = static_cast<std::uint64_t>(triangles[e]);
        sum[kDiamonds] += t * (t - 1) / 2;
      }
    }
    mine.add_to(all);
  }
  all.finish(counts, k);
}
