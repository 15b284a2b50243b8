// Direct sums on the CPU, in tiles that stay in the first cache. Coordinates: x of all bodies, then y, then z.
#include "vectors.hpp"

#include <algorithm>
#include <cstring>

static constexpr int kTile = 1024;                        // bodies

// Accelerations, over G, of the bodies begin .. begin + count - 1, at most kWidth, by those of all tiles.
EACH_PROCESSOR
static void attract(float* a, const float* x, const float* m, int n, int begin, int end, float soft) {
  for (int tile = 0; tile < n; tile += kTile) {
    const int last = std::min(n, tile + kTile);
    for (int i = begin; i < end; i += kWidth) {
      const int count = std::min(kWidth, end - i);
      Vector at[3] = {}, sum[3] = {};
      for (int c = 0; c < 3; ++c) std::memcpy(&at[c], x + static_cast<long>(c) * n + i, count * sizeof(float));
      for (int j = tile; j < last; ++j) attract_by(sum, at, x[j], x[n + j], x[2L * n + j], m[j], soft);
      for (int c = 0; c < 3; ++c)
        for (int k = 0; k < count; ++k) {
          float& to = a[static_cast<long>(c) * n + i + k];
          to = (tile == 0 ? 0 : to) + sum[c][k];
        }
    }
  }
}

static void move(float* x, float* v, float* a, int n, float step, float G) {
  for (long i = 0; i < 3L * n; ++i) {
    a[i] *= G;
    v[i] += step * a[i];
    x[i] += step * v[i];
  }
}

void nbody_tiled(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps, double step,
                 double soft, double G, double, float* v) {
  std::copy(x0, x0 + 3L * n, x);
  std::copy(v0, v0 + 3L * n, v);
  for (int s = 0; s < steps; ++s) {
    attract(a, x, m, n, 0, n, static_cast<float>(soft));
    move(x, v, a, n, static_cast<float>(step), static_cast<float>(G));
  }
}

void nbody_openmp(float* x, float* a, const float* x0, const float* v0, const float* m, int n, int steps, double step,
                  double soft, double G, double, float* v) {
  std::copy(x0, x0 + 3L * n, x);
  std::copy(v0, v0 + 3L * n, v);
  constexpr int kEach = 2 * kWidth;
#pragma omp parallel
  for (int s = 0; s < steps; ++s) {
#pragma omp for schedule(static)
    for (int i = 0; i < n; i += kEach) attract(a, x, m, n, i, std::min(n, i + kEach), static_cast<float>(soft));
#pragma omp single
    move(x, v, a, n, static_cast<float>(step), static_cast<float>(G));
  }
}
