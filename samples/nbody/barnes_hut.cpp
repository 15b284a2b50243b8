// Barnes and Hut's method (Nature 324, 1986) on the CPU. Coordinates: x of all bodies, then y, then z.
#include "cells.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace {

Box box_of(const float* x, int n) {
  Box box{};
  for (int c = 0; c < 3; ++c) {
    float low = x[static_cast<long>(c) * n], high = low;
    for (int i = 0; i < n; ++i) {
      low = std::min(low, x[static_cast<long>(c) * n + i]);
      high = std::max(high, x[static_cast<long>(c) * n + i]);
    }
    box.low[c] = low;
    box.size = std::max(box.size, high - low);
  }
  box.size = box.size * 1.0001f + 1e-30f;
  return box;
}

void add(float (&sum)[3], const float* cell, const float* at, float soft) {
  const float dx = cell[0] - at[0], dy = cell[1] - at[1], dz = cell[2] - at[2];
  const float squared = dx * dx + dy * dy + dz * dz + soft * soft, pull = cell[3] / (squared * std::sqrt(squared));
  sum[0] += pull * dx;
  sum[1] += pull * dy;
  sum[2] += pull * dz;
}

// The centre and the mass of a cell, from those of its parts.
void gather(float* cell, const float* parts, int count) {
  float sum[4] = {};
  for (int p = 0; p < count; ++p) {
    for (int c = 0; c < 3; ++c) sum[c] += parts[4L * p + 3] * parts[4L * p + c];
    sum[3] += parts[4L * p + 3];
  }
  for (int c = 0; c < 3; ++c) cell[c] = sum[3] > 0 ? sum[c] / sum[3] : count > 0 ? parts[c] : 0;
  cell[3] = sum[3];
}

}  // namespace

// `sorted`: four numbers for each body, leaf by leaf; `first`: where each leaf begins among them.
void barnes_hut(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps, double step,
                double soft, double G, double theta, float* v, float* sorted, float* cells, int* first, int* cell_of,
                int* place) {
  const int depth = depth_for(n), leaves = 1 << 3 * depth;
  std::copy(x0, x0 + 3L * n, x);
  std::copy(v0, v0 + 3L * n, v);
  Box box{};
#pragma omp parallel
  for (int s = 0; s < steps; ++s) {
#pragma omp single
    {
      box = box_of(x, n);
      std::fill(first, first + leaves + 1, 0);
    }
#pragma omp for schedule(static)
    for (int i = 0; i < n; ++i) cell_of[i] = leaf_of(box, depth, x[i], x[n + i], x[2L * n + i]);
#pragma omp single
    {
      for (int i = 0; i < n; ++i) place[i] = first[cell_of[i]]++;
      int before = 0;
      for (int leaf = 0; leaf <= leaves; ++leaf) before += std::exchange(first[leaf], before);
    }
#pragma omp for schedule(static)
    for (int i = 0; i < n; ++i) {
      place[i] += first[cell_of[i]];
      float* to = sorted + 4L * place[i];
      for (int c = 0; c < 3; ++c) to[c] = x[static_cast<long>(c) * n + i];
      to[3] = m[i];
    }
#pragma omp for schedule(static)
    for (int leaf = 0; leaf < leaves; ++leaf)
      gather(cells + 4L * (begin_of(depth) + leaf), sorted + 4L * first[leaf], first[leaf + 1] - first[leaf]);
    for (int level = depth - 1; level >= 0; --level) {
#pragma omp for schedule(static)
      for (int cell = 0; cell < 1 << 3 * level; ++cell)
        gather(cells + 4L * (begin_of(level) + cell), cells + 4L * (begin_of(level + 1) + 8 * cell), 8);
    }
#pragma omp for schedule(dynamic, 64)
    for (int i = 0; i < n; ++i) {
      const float at[3] = {x[i], x[n + i], x[2L * n + i]};
      float sum[3] = {};
      int level = 0, cell = 0;
      for (bool more = true; more;) {
        const float* of = cells + 4L * (begin_of(level) + cell);
        const float dx = of[0] - at[0], dy = of[1] - at[1], dz = of[2] - at[2];
        const float size = box.size / static_cast<float>(1 << level), wanted = size / static_cast<float>(theta);
        const bool far = of[3] == 0 || wanted * wanted < dx * dx + dy * dy + dz * dz;
        if (!far && level < depth) {
          ++level;
          cell *= 8;                                      // its first child
          continue;
        }
        if (far)
          add(sum, of, at, static_cast<float>(soft));
        else
          for (int j = first[cell]; j < first[cell + 1]; ++j) add(sum, sorted + 4L * j, at, static_cast<float>(soft));
        more = go_on(level, cell);
      }
      for (int c = 0; c < 3; ++c) a[static_cast<long>(c) * n + i] = static_cast<float>(G) * sum[c];
    }
#pragma omp for schedule(static)
    for (long i = 0; i < 3L * n; ++i) {
      v[i] += static_cast<float>(step) * a[i];
      x[i] += static_cast<float>(step) * v[i];
    }
  }
}
