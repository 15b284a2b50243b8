// Which motif four vertices are, and how counts of motifs follow from others.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

enum Motif { kStar, kPath, kPaw, kCycle, kDiamond, kClique };

// The motif of four vertices, the first two adjacent. `third`: whether the third is adjacent to the first (1) and to the
// second (2); `fourth`: the same, and to the third (4).
BOTH inline int motif_of(int third, int fourth) {
  int degree[4] = {1, 1, 0, 0}, edges = 1;
  for (int v = 0; v < 3; ++v) {
    const int with_third = v < 2 ? third >> v & 1 : 0, with_fourth = fourth >> v & 1;
    degree[v] += with_third + with_fourth;
    degree[2] += with_third;
    degree[3] += with_fourth;
    edges += with_third + with_fourth;
  }
  const bool hub = degree[0] == 3 || degree[1] == 3 || degree[2] == 3 || degree[3] == 3;
  return edges == 6 ? kClique : edges == 5 ? kDiamond : edges == 4 ? hub ? kPaw : kCycle : hub ? kStar : kPath;
}

// Occurrences, induced or not; but kPaths counts a triangle three times.
enum { kWedges, kStars, kPaths, kTriangles, kPaws, kDiamonds, kCycles, kCliques, kSums };

struct Sums {
  std::uint64_t of[kSums];

  // Counts of induced subgraphs (Ahmed et al.: Efficient graphlet counting for large networks, 2015).
  BOTH void finish(std::uint64_t* counts, int k) const {
    for (int i = 0; i < 6; ++i) counts[i] = 0;
    if (k == 3) {
      counts[0] = of[kWedges] - 3 * of[kTriangles];
      counts[1] = of[kTriangles];
      return;
    }
    const std::uint64_t clique = of[kCliques], diamond = of[kDiamonds] - 6 * clique;
    const std::uint64_t cycle = of[kCycles] - diamond - 3 * clique, paw = of[kPaws] - 4 * diamond - 12 * clique;
    counts[kStar] = of[kStars] - paw - 2 * diamond - 4 * clique;
    counts[kPath] = of[kPaths] - 3 * of[kTriangles] - 2 * paw - 4 * cycle - 6 * diamond - 12 * clique;
    counts[kPaw] = paw;
    counts[kCycle] = cycle;
    counts[kDiamond] = diamond;
    counts[kClique] = clique;
  }
};
