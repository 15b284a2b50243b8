// The tree of Barnes and Hut with all leaves at one depth: level l has 8^l cells, the children of cell c are 8 c .. 8 c + 7.
// A cell is known by its level and by its number, which is its place on a Morton curve.
#pragma once

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

struct Box { float low[3], size; };                       // of all bodies: a cube

// The level of the leaves: two bodies for each leaf, or fewer. All levels together have less than 5 n cells.
BOTH inline int depth_for(int n) {
  int depth = 0;
  while (2L << 3 * depth < n) ++depth;
  return depth;
}

// Where the cells of a level begin among all of them, the root first.
BOTH inline int begin_of(int level) { return ((1 << 3 * level) - 1) / 7; }

BOTH inline int leaf_of(const Box& box, int depth, float x, float y, float z) {
  const float at[3] = {x, y, z};
  int cell = 0;
  for (int c = 0; c < 3; ++c) {
    int place = static_cast<int>((at[c] - box.low[c]) / box.size * static_cast<float>(1 << depth));
    place = place < 0 ? 0 : place < 1 << depth ? place : (1 << depth) - 1;
    for (int bit = 0; bit < depth; ++bit) cell |= (place >> bit & 1) << (3 * bit + c);
  }
  return cell;
}

// Where a body goes on from a cell that it has done with: the next of the same parent, or of an ancestor's. False at
// the end of the tree.
BOTH inline bool go_on(int& level, int& cell) {
  for (++cell; level > 0 && cell % 8 == 0; --level) cell /= 8;
  return level > 0;
}
