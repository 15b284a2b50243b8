// C = A B on the CPU, row-major: C is M x N, A is M x K, B is K x N; with `relu`, max(C, 0).
#include <algorithm>
#include <cstddef>

// Compiled for several processors; the program takes what its own has. No -march is needed.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define EACH_PROCESSOR
#endif

static inline float finished(float sum, bool relu) { return relu && sum < 0 ? 0 : sum; }

// Three loops.
EACH_PROCESSOR
void gemm_naive(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
  for (int i = 0; i < M; ++i) {
    float* c = C + std::size_t(i) * N;
    for (int j = 0; j < N; ++j) c[j] = 0;
    for (int k = 0; k < K; ++k) {
      const float a = A[std::size_t(i) * K + k];
      for (int j = 0; j < N; ++j) c[j] += a * B[std::size_t(k) * N + j];
    }
    for (int j = 0; j < N; ++j) c[j] = finished(c[j], relu);
  }
}

// ---- tiles -----------------------------------------------------------------------------------------------------

static constexpr int kRows = 6, kColumns = 16;           // of C in registers
static constexpr int kTileM = 48, kTileN = 64, kTileK = 256;
typedef float Vector __attribute__((vector_size(kColumns * sizeof(float))));  // one register or several

// One tile of C, `rows` x `columns`, plus A times a packed tile of B: panels of kColumns, row after row.
EACH_PROCESSOR
static void multiply_tile(float* C, const float* A, const float* panels, int rows, int columns, int depth,
                          std::size_t N, std::size_t K, bool first, bool relu) {
  for (int i = 0; i < rows; i += kRows) {
    const int height = std::min(kRows, rows - i);
    const float* a[kRows];                                // the last row again where there are fewer
    for (int r = 0; r < kRows; ++r) a[r] = A + std::min(i + r, rows - 1) * K;
    for (int j = 0; j < columns; j += kColumns) {
      const Vector* b = reinterpret_cast<const Vector*>(panels + std::size_t(j) * kTileK);
      Vector sum[kRows] = {};
      for (int k = 0; k < depth; ++k)
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) sum[r] += a[r][k] * b[k];
      const int width = std::min(kColumns, columns - j);
      for (int r = 0; r < height; ++r) {
        float* c = C + (i + r) * N + j;
        for (int x = 0; x < width; ++x) c[x] = finished(first ? sum[r][x] : c[x] + sum[r][x], relu);
      }
    }
  }
}

void gemm_openmp(float* C, const float* A, const float* B, int M, int N, int K, bool relu) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int j = 0; j < N; j += kTileN)
    for (int i = 0; i < M; i += kTileM) {
      alignas(64) float panels[kTileN * kTileK];
      const int rows = std::min(kTileM, M - i), columns = std::min(kTileN, N - j);
      for (int k = 0; k == 0 || k < K; k += kTileK) {
        const int depth = std::min(kTileK, K - k);
        for (int p = 0; p < columns; p += kColumns)
          for (int x = 0; x < depth; ++x)
            for (int c = 0; c < kColumns; ++c)
              panels[p * kTileK + x * kColumns + c] =
                  p + c < columns ? B[std::size_t(k + x) * N + j + p + c] : 0;
        multiply_tile(C + std::size_t(i) * N + j, A + std::size_t(i) * K + k, panels, rows, columns, depth, N, K,
                      k == 0, relu && k + kTileK >= K);
      }
    }
}

// ---- sparse ----------------------------------------------------------------------------------------------------

// c += the rows of B that `col` names, times `val`; four at a time, so that c is read and written less often.
EACH_PROCESSOR
static void add_rows(float* c, const float* B, const int* col, const float* val, int found, std::size_t N, bool relu) {
  for (std::size_t j = 0; j < N; ++j) c[j] = 0;
  int e = 0;
  for (; e + 4 <= found; e += 4) {
    const float *b0 = B + col[e] * N, *b1 = B + col[e + 1] * N, *b2 = B + col[e + 2] * N, *b3 = B + col[e + 3] * N;
    const float v0 = val[e], v1 = val[e + 1], v2 = val[e + 2], v3 = val[e + 3];
    for (std::size_t j = 0; j < N; ++j) c[j] += (v0 * b0[j] + v1 * b1[j]) + (v2 * b2[j] + v3 * b3[j]);
  }
  for (; e < found; ++e)
    for (std::size_t j = 0; j < N; ++j) c[j] += val[e] * B[col[e] * N + j];
  for (std::size_t j = 0; j < N; ++j) c[j] = finished(c[j], relu);
}

// Each row of A without its zeros, then times B. Row i of the CSR begins at i * K: no pass over A only counts.
void gemm_sparse(float* C, const float* A, const float* B, int M, int N, int K, bool relu, int* found, int* a_col,
                 float* a_val) {
#pragma omp parallel for schedule(static)
  for (int i = 0; i < M; ++i) {
    const std::size_t begin = std::size_t(i) * K;
    int count = 0;
    for (int k = 0; k < K; ++k) {                         // without a branch, which random zeros would mislead
      a_col[begin + count] = k;
      a_val[begin + count] = A[begin + k];
      count += A[begin + k] != 0;
    }
    found[i] = count;
    add_rows(C + std::size_t(i) * N, B, a_col + begin, a_val + begin, count, N, relu);
  }
}
