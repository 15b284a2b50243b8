// The tree of Barnes and Hut (Nature 324, 1986) without pointers: bodies in the order of a Hilbert curve; each leaf has
// the next kLeaf of them, each cell above it the next kChildren cells of the level below. It adapts to any cloud, since
// it divides bodies, not space; the boxes of its cells are those of their bodies. The bodies of a cell of level 1, a
// group, walk through it together.
#pragma once

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

constexpr int kLeaf = 8, kChildren = 4, kGroup = kLeaf * kChildren;
constexpr int kBits = 10;                                 // of a coordinate on the curve

struct alignas(16) Cell {
  float at[3], mass;                                      // the centre of its bodies
  float low[3];
  int first;                                              // child, among all cells, or body
  float high[3];
  int count;                                              // of children or bodies
};

// Where each level begins among all cells; the leaves are level 0, the last cell is the root.
struct Levels { int count, begin[18]; };

BOTH inline Levels levels_for(int n) {
  Levels levels{};
  int cells = (n + kLeaf - 1) / kLeaf;
  for (levels.begin[levels.count = 1] = cells; cells > 1 || levels.count < 2; ++levels.count) {
    cells = (cells + kChildren - 1) / kChildren;
    levels.begin[levels.count + 1] = levels.begin[levels.count] + cells;
  }
  return levels;
}

struct Box { float low[3], size; };                       // of all bodies: a cube

// The place of a body on the curve, kBits bits for each coordinate (Skilling: Programming the Hilbert curve, 2004).
BOTH inline unsigned place_of(const Box& box, float x, float y, float z) {
  const float at[3] = {x, y, z}, cells = 1 << kBits;
  unsigned axes[3] = {};
  for (int c = 0; c < 3; ++c) {
    const float place = (at[c] - box.low[c]) / box.size * cells;
    axes[c] = place > 0 ? place < cells - 1 ? static_cast<unsigned>(place) : (1u << kBits) - 1 : 0;
  }
  for (unsigned bit = 1u << (kBits - 1); bit > 1; bit /= 2)
    for (unsigned& axis : axes) {
      const unsigned below = bit - 1, change = axis & bit ? 0 : (axes[0] ^ axis) & below;
      axes[0] ^= axis & bit ? below : change;
      axis ^= change;
    }
  axes[1] ^= axes[0];
  axes[2] ^= axes[1];
  unsigned flip = 0, place = 0;
  for (unsigned bit = 1u << (kBits - 1); bit > 1; bit /= 2) flip ^= axes[2] & bit ? bit - 1 : 0;
  for (int bit = kBits - 1; bit >= 0; --bit)
    for (const unsigned axis : axes) place = 2 * place + ((axis ^ flip) >> bit & 1);
  return place;
}

// The cell of some cells of the level below, the first of which is number `first` of all.
BOTH inline Cell cell_of(const Cell* cells, int first, int count) {
  Cell all = cells[first];
  for (int c = 0; c < 3; ++c) all.at[c] *= all.mass;
  for (int i = 1; i < count; ++i) {
    const Cell& part = cells[first + i];
    for (int c = 0; c < 3; ++c) {
      all.at[c] += part.mass * part.at[c];
      all.low[c] = part.low[c] < all.low[c] ? part.low[c] : all.low[c];
      all.high[c] = part.high[c] > all.high[c] ? part.high[c] : all.high[c];
    }
    all.mass += part.mass;
  }
  for (int c = 0; c < 3; ++c) all.at[c] = all.mass > 0 ? all.at[c] / all.mass : all.low[c];
  all.first = first;
  all.count = count;
  return all;
}

// Whether a cell counts as one body for all of a group: its longest edge is shorter than `theta` times the distance of
// its centre from the box of the group.
BOTH inline bool is_far(const Cell& cell, const Cell& group, float theta) {
  float edge = 0, squared = 0;
  for (int c = 0; c < 3; ++c) {
    const float size = cell.high[c] - cell.low[c], under = group.low[c] - cell.at[c], over = cell.at[c] - group.high[c];
    edge = size > edge ? size : edge;
    const float apart = under > over ? under : over;
    squared += apart > 0 ? apart * apart : 0;
  }
  return edge * edge < theta * theta * squared;
}
