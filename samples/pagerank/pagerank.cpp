// PageRank on the CPU: x = d P x + (1 - d) / n, iterated until an iteration changes x by no more than `limit`, summed
// over all vertices. Vertices without links give their rank to nobody here; dividing x by its sum in the end is the
// same as giving it to all vertices (Langville and Meyer, 2006, section 5.2).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads() { return 1; }
static int omp_get_num_threads() { return 1; }
static int omp_get_thread_num() { return 0; }
#endif

namespace {

constexpr int kMost = 1000;                               // iterations: single precision may not reach the limit

// Threads that are worth their barriers: one for each 8192 edges and vertices.
int threads_for(int n, int m) { return std::clamp((n + m) / 8192, 1, omp_get_max_threads()); }

// A sum of one number of each thread, the same on all of them. Each of the two in turn is used once between barriers.
class Sums {
 public:
  explicit Sums(int threads) : of_(2 * threads) {}
  double operator()(double mine) {
    const int threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int turn = of_[me].turn ^= 1;                   // the other numbers may still be read
    of_[turn * threads + me].value = mine;
#pragma omp barrier
    double all = 0;
    for (int t = 0; t < threads; ++t) all += of_[turn * threads + t].value;
    return all;
  }

 private:
  struct alignas(64) One { double value = 0; int turn = 0; };
  std::vector<One> of_;
};

// The vertices of this thread: those of the same number of edges and vertices together as the others have.
struct Mine { int begin, end; };
Mine mine(const int* ptr, int n) {
  const long all = static_cast<long>(ptr[n]) + n, threads = omp_get_num_threads(), me = omp_get_thread_num();
  const auto at = [&](long part) {
    int low = 0, high = n;                                // the first vertex that has so much before it
    while (low < high) {
      const int middle = (low + high) / 2;
      if (static_cast<long>(ptr[middle]) + middle < part) low = middle + 1; else high = middle;
    }
    return low;
  };
  return {at(all * me / threads), at(all * (me + 1) / threads)};
}

float share(float rank, const int* out_ptr, int v, double d) {
  const int degree = out_ptr[v + 1] - out_ptr[v];
  return degree == 0 ? 0 : static_cast<float>(d) * rank / static_cast<float>(degree);
}

void add(float* to, float value, bool alone) {
  if (alone) { *to += value; return; }
#pragma omp atomic
  *to += value;
}

void normalise(float* x, Mine part, Sums& sums) {
  double sum = 0;
  for (int v = part.begin; v < part.end; ++v) sum += x[v];
  const double all = sums(sum);
  for (int v = part.begin; v < part.end; ++v) x[v] = static_cast<float>(x[v] / all);
}

}  // namespace

// Each vertex adds what its predecessors give. `given`: what each gives to each of its successors, of this iteration
// and of the next.
void pagerank_pull(float* x, const int* in_ptr, const int* from, const int* out_ptr, const int*, int n, int m, double d,
                   double limit, float* given) {
  const int threads = threads_for(n, m);
  Sums sums(threads);
#pragma omp parallel num_threads(threads)
  {
    const Mine part = mine(in_ptr, n);
    for (int v = part.begin; v < part.end; ++v) given[v] = share(x[v] = 1.0f / n, out_ptr, v, d);
    float *now = given, *next = given + n;
    double change = sums(0);
    int times = 0;
    do {
      change = 0;
      for (int v = part.begin; v < part.end; ++v) {
        float sum = static_cast<float>((1 - d) / n);
        for (int e = in_ptr[v]; e < in_ptr[v + 1]; ++e) sum += now[from[e]];
        change += std::abs(static_cast<double>(sum) - x[v]);
        next[v] = share(x[v] = sum, out_ptr, v, d);
      }
      std::swap(now, next);
      change = sums(change);
    } while (change > limit && ++times < kMost);
    normalise(x, part, sums);
  }
}

// Each vertex gives to its successors.
void pagerank_push(float* x, const int*, const int*, const int* out_ptr, const int* to, int n, int m, double d,
                   double limit, float* given, float* sum) {
  const int threads = threads_for(n, m);
  Sums sums(threads);
#pragma omp parallel num_threads(threads)
  {
    const Mine part = mine(out_ptr, n);
    const bool alone = omp_get_num_threads() == 1;
    const float base = static_cast<float>((1 - d) / n);
    for (int v = part.begin; v < part.end; ++v) {
      given[v] = share(x[v] = 1.0f / n, out_ptr, v, d);
      sum[v] = base;
    }
    double change = sums(0);
    int times = 0;
    do {
      for (int v = part.begin; v < part.end; ++v)
        for (int e = out_ptr[v]; e < out_ptr[v + 1]; ++e) add(sum + to[e], given[v], alone);
#pragma omp barrier
      change = 0;
      for (int v = part.begin; v < part.end; ++v) {
        change += std::abs(static_cast<double>(sum[v]) - x[v]);
        given[v] = share(x[v] = sum[v], out_ptr, v, d);
        sum[v] = base;
      }
      change = sums(change);
    } while (change > limit && ++times < kMost);
    normalise(x, part, sums);
  }
}

// Only vertices whose `rest`, what they have not passed on yet, still matters pass it on: all others wait. Few of them
// push it along their edges; where there are many, all vertices pull. The rests sum to the change of an iteration.
void pagerank_delta(float* x, const int* in_ptr, const int* from, const int* out_ptr, const int* to, int n, int m,
                    double d, double limit, float* rest, float* given, int* active) {
  const int threads = threads_for(n, m);
  Sums sums(threads);
#pragma omp parallel num_threads(threads)
  {
    const Mine part = mine(in_ptr, n);
    const bool alone = omp_get_num_threads() == 1;
    const float matters = static_cast<float>(0.5 * limit / n);
    for (int v = part.begin; v < part.end; ++v) x[v] = 0, rest[v] = static_cast<float>((1 - d) / n);
    for (int times = 0; times < kMost; ++times) {
      double all = 0, edges = 0;
      int count = part.begin;                             // of this thread's active vertices, from there
      for (int v = part.begin; v < part.end; ++v) {
        all += rest[v];
        given[v] = 0;
        if (rest[v] <= matters) continue;
        x[v] += rest[v];
        given[v] = share(rest[v], out_ptr, v, d);
        rest[v] = 0;
        active[count++] = v;
        edges += out_ptr[v + 1] - out_ptr[v];
      }
      if (sums(all) <= limit) break;
      if (sums(edges) > 0.1 * m) {
        for (int v = part.begin; v < part.end; ++v) {
          float sum = 0;
          for (int e = in_ptr[v]; e < in_ptr[v + 1]; ++e) sum += given[from[e]];
          rest[v] += sum;
        }
      } else {
        for (int i = part.begin; i < count; ++i)
          for (int e = out_ptr[active[i]]; e < out_ptr[active[i] + 1]; ++e) add(rest + to[e], given[active[i]], alone);
      }
#pragma omp barrier
    }
    normalise(x, part, sums);
  }
}

// By blocks of successors whose sums stay in the second cache, with about as many edges each. A vertex sends one message
// to each block that it links to: messages are written block by block, and read by the one thread that adds them up
// (Beamer, Asanovic and Patterson, 2017: propagation blocking; Lakhotia, Kannan and Prasanna, 2018: one message for a
// block). `sender`: of each message; `place`: of the end of each edge in its block, with kNext where a message begins.
void pagerank_blocks(float* x, const int* in_ptr, const int*, const int* out_ptr, const int* to, int n, int m, double d,
                     double limit, float* given, float* message, int* sender, std::uint16_t* place) {
  constexpr int kWidth = 16384, kNext = 0x8000;           // vertices of a block, at most
  const int threads = threads_for(n, m), most = std::max(1024, m / (4 * threads));
  std::vector<int> begins(1, 0), block_of(n);
  while (begins.back() < n) {
    const int begin = begins.back();
    const int* last = std::upper_bound(in_ptr + begin + 1, in_ptr + std::min(n, begin + kWidth), in_ptr[begin] + most);
    const int end = static_cast<int>(last - in_ptr);
    std::fill(block_of.begin() + begin, block_of.begin() + end, static_cast<int>(begins.size()) - 1);
    begins.push_back(end);
  }
  const int blocks = static_cast<int>(begins.size()) - 1;
  struct Part { int edges, messages; };                   // of a block and a thread: how many, then where they begin
  std::vector<Part> parts(static_cast<std::size_t>(blocks) * threads + 1);
  Sums sums(threads);
#pragma omp parallel num_threads(threads)
  {
    const int me = omp_get_thread_num(), all = omp_get_num_threads();
    const Mine part = mine(out_ptr, n);
    const auto each_edge = [&](auto visit) {              // of mine, with its block and whether a message begins
      for (int v = part.begin; v < part.end; ++v)
        for (int e = out_ptr[v], last = -1; e < out_ptr[v + 1]; last = block_of[to[e++]])
          visit(v, to[e], block_of[to[e]], block_of[to[e]] != last);
    };
    std::vector<Part> own(blocks);
    each_edge([&](int, int, int block, bool begins_here) {
      ++own[block].edges;
      own[block].messages += begins_here;
    });
    for (int block = 0; block < blocks; ++block) parts[static_cast<std::size_t>(block) * all + me] = own[block];
    for (int v = part.begin; v < part.end; ++v) given[v] = share(x[v] = 1.0f / n, out_ptr, v, d);
#pragma omp barrier
#pragma omp single
    {
      Part before{};
      for (Part& here : parts) {
        const Part count = here;
        here = before;
        before = {before.edges + count.edges, before.messages + count.messages};
      }
    }
    for (int block = 0; block < blocks; ++block) own[block] = parts[static_cast<std::size_t>(block) * all + me];
    each_edge([&](int v, int end, int block, bool begins_here) {
      place[own[block].edges++] = static_cast<std::uint16_t>(end - begins[block] + (begins_here ? kNext : 0));
      if (begins_here) sender[own[block].messages++] = v;
    });
    std::vector<float> sum(kWidth);
    double change = 0;
    int times = 0;
    do {
      for (int block = 0; block < blocks; ++block) {
        const Part* at = parts.data() + static_cast<std::size_t>(block) * all + me;
        for (int i = at[0].messages; i < at[1].messages; ++i) message[i] = given[sender[i]];
      }
#pragma omp barrier
      change = 0;
#pragma omp for schedule(dynamic) nowait
      for (int block = 0; block < blocks; ++block) {
        const Part *at = parts.data() + static_cast<std::size_t>(block) * all, *next = at + all;
        const int begin = begins[block], count = begins[block + 1] - begin;
        std::fill(sum.begin(), sum.begin() + count, static_cast<float>((1 - d) / n));
        const float* value = message + at->messages - 1;
        for (int e = at->edges; e < next->edges; ++e) {
          value += place[e] >> 15;
          sum[place[e] & (kNext - 1)] += *value;
        }
        for (int v = begin; v < begin + count; ++v) {
          change += std::abs(static_cast<double>(sum[v - begin]) - x[v]);
          given[v] = share(x[v] = sum[v - begin], out_ptr, v, d);
        }
      }
      change = sums(change);
    } while (change > limit && ++times < kMost);
    normalise(x, part, sums);
  }
}
