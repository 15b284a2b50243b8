// Barnes and Hut's method on the CPU. Coordinates: x of all bodies, then y, then z.
#include "tree.hpp"
#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads() { return 1; }
static int omp_get_num_threads() { return 1; }
static int omp_get_thread_num() { return 0; }
#endif

namespace {

constexpr int kDigit = 10, kDigits = 1 << kDigit;         // bits of a place that one pass of the sort looks at
constexpr int kList = 1024;

Box box_of(const float* x, int n) {
  Box box{};
  for (int c = 0; c < 3; ++c) {
    const auto [low, high] = std::minmax_element(x + static_cast<long>(c) * n, x + static_cast<long>(c + 1) * n);
    box.low[c] = *low;
    box.size = std::max(box.size, *high - *low);
  }
  box.size += 1e-30f;
  return box;
}

struct Order { unsigned place; int body; };

// By one digit of the place, stably. All threads; `counts` has kDigits numbers for each.
void sort_by(int shift, Order* to, const Order* from, int n, int* counts) {
  const long threads = omp_get_num_threads(), me = omp_get_thread_num();
  const int begin = static_cast<int>(n * me / threads), end = static_cast<int>(n * (me + 1) / threads);
  int* mine = counts + me * kDigits;
  std::fill(mine, mine + kDigits, 0);
  for (int i = begin; i < end; ++i) ++mine[from[i].place >> shift & (kDigits - 1)];
#pragma omp barrier
  int next[kDigits], before = 0;
  for (int digit = 0; digit < kDigits; ++digit)
    for (int t = 0; t < threads; ++t) {
      if (t == me) next[digit] = before;
      before += counts[t * kDigits + digit];
    }
  for (int i = begin; i < end; ++i) to[next[from[i].place >> shift & (kDigits - 1)]++] = from[i];
#pragma omp barrier
}

// Bodies and centres of cells that act on a group.
struct List {
  int size = 0;
  float x[kList], y[kList], z[kList], mass[kList];
};

EACH_PROCESSOR
void attract(Vector (&sum)[2][3], const Vector (&at)[2][3], const List& list, float soft) {
  for (int j = 0; j < list.size; ++j)
    for (int half = 0; half < 2; ++half)
      attract_by(sum[half], at[half], list.x[j], list.y[j], list.z[j], list.mass[j], soft);
}

Cell leaf_of(const float* sorted, int n, int first, int count) {
  Cell leaf{};
  double sum[3] = {}, mass = 0;
  for (int c = 0; c < 3; ++c) {
    const float* x = sorted + static_cast<long>(c) * n + first;
    leaf.low[c] = *std::min_element(x, x + count);
    leaf.high[c] = *std::max_element(x, x + count);
    for (int i = 0; i < count; ++i) sum[c] += static_cast<double>(x[i]) * sorted[3L * n + first + i];
  }
  for (int i = 0; i < count; ++i) mass += sorted[3L * n + first + i];
  for (int c = 0; c < 3; ++c) leaf.at[c] = mass > 0 ? static_cast<float>(sum[c] / mass) : leaf.low[c];
  leaf.mass = static_cast<float>(mass);
  leaf.first = first;
  leaf.count = count;
  return leaf;
}

// Accelerations, over G, of the bodies of a group, `count` from `first` on.
void walk(Vector (&sum)[2][3], const Cell* cells, int root, int leaves, const Cell& group, const float* sorted, int n,
          int first, int count, float soft, float theta, List& list, std::vector<int>& left) {
  Vector at[2][3] = {};
  static_assert(kGroup == 2 * kWidth, "two vectors");
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < count; ++i) at[i / kWidth][c][i % kWidth] = sorted[static_cast<long>(c) * n + first + i];
  list.size = 0;
  left.assign(1, root);
  while (!left.empty()) {
    const Cell& cell = cells[left.back()];
    const bool leaf = left.back() < leaves;
    left.pop_back();
    if (list.size + kLeaf > kList) {
      attract(sum, at, list, soft);
      list.size = 0;
    }
    if (is_far(cell, group, theta)) {
      list.x[list.size] = cell.at[0];
      list.y[list.size] = cell.at[1];
      list.z[list.size] = cell.at[2];
      list.mass[list.size++] = cell.mass;
    } else if (leaf) {
      const float* from = sorted + cell.first;
      for (float* to : {list.x, list.y, list.z, list.mass}) {
        std::copy(from, from + cell.count, to + list.size);
        from += n;
      }
      list.size += cell.count;
    } else {
      for (int i = 0; i < cell.count; ++i) left.push_back(cell.first + i);
    }
  }
  attract(sum, at, list, soft);
}

}  // namespace

// `sorted`: coordinates and masses in the order of the curve.
void barnes_hut(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps, double step,
                double soft, double G, double theta, float* v, float* sorted, float* all_cells, int* orders) {
  const Levels levels = levels_for(n);
  const int leaves = levels.begin[1], root = levels.begin[levels.count] - 1;
  Cell* cells = reinterpret_cast<Cell*>(all_cells);
  Order* order[2] = {reinterpret_cast<Order*>(orders), reinterpret_cast<Order*>(orders) + n};
  std::vector<int> counts(static_cast<std::size_t>(omp_get_max_threads()) * kDigits);
  std::copy(x0, x0 + 3L * n, x);
  std::copy(v0, v0 + 3L * n, v);
  Box box{};
#pragma omp parallel
  {
    List list;
    std::vector<int> left;
    for (int s = 0; s < steps; ++s) {
#pragma omp single
      box = box_of(x, n);
#pragma omp for schedule(static)
      for (int i = 0; i < n; ++i) order[0][i] = {place_of(box, x[i], x[n + i], x[2L * n + i]), i};
      for (int pass = 0; pass < 3; ++pass)
        sort_by(pass * kDigit, order[(pass + 1) % 2], order[pass % 2], n, counts.data());
      const Order* sequence = order[1];
#pragma omp for schedule(static)
      for (int leaf = 0; leaf < leaves; ++leaf) {
        const int first = leaf * kLeaf, count = std::min(kLeaf, n - first);
        for (int i = first; i < first + count; ++i) {
          for (int c = 0; c < 3; ++c) sorted[static_cast<long>(c) * n + i] = x[static_cast<long>(c) * n + sequence[i].body];
          sorted[3L * n + i] = m[sequence[i].body];
        }
        cells[leaf] = leaf_of(sorted, n, first, count);
      }
      for (int level = 1; level < levels.count; ++level) {
        const int begin = levels.begin[level], below = levels.begin[level - 1];
#pragma omp for schedule(static)
        for (int i = begin; i < levels.begin[level + 1]; ++i) {
          const int first = below + (i - begin) * kChildren;
          cells[i] = cell_of(cells, first, std::min(kChildren, begin - first));
        }
      }
#pragma omp for schedule(dynamic, 4)
      for (int first = 0; first < n; first += kGroup) {
        Vector sum[2][3] = {};
        const Cell& group = cells[leaves + first / kGroup];
        const int count = std::min(kGroup, n - first);
        walk(sum, cells, root, leaves, group, sorted, n, first, count, static_cast<float>(soft),
             static_cast<float>(theta), list, left);
        for (int i = 0; i < count; ++i)
          for (int c = 0; c < 3; ++c) {
            const long to = static_cast<long>(c) * n + sequence[first + i].body;
            a[to] = static_cast<float>(G) * sum[i / kWidth][c][i % kWidth];
            v[to] += static_cast<float>(step) * a[to];
            x[to] += static_cast<float>(step) * v[to];
          }
      }
    }
  }
}
