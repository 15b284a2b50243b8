// The iteration of tests/emit/data/inner.dag by hand: its inner loop tested by the host after each round, by a while node within a
// while node, and unrolled with kernels that return at once (as dagc writes it). us a run, median of 9 of 300 runs; the arrays must agree.
//   inner MOST BOUND
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) do { const cudaError_t e = (call); if (e != cudaSuccess) { std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); std::exit(1); } } while (0)
constexpr long m = 100;

__global__ void grow(double* u, double* change, int* wanted) {
  for (long i = 0; i < m; ++i) u[i] = 3 * u[i] + 1;
  change[0] = 1e30;
  wanted[0] = (wanted[0] + 2) % 5;
}
__global__ void halve(const int* holds, double* u) {
  if (holds != nullptr && holds[0] != 1) return;
  const long i = (long)blockIdx.x * 32 + threadIdx.x;
  if (i < m) u[i] = 0.5 * u[i];
}
__global__ void largest(const int* holds, double* change, const double* u, int* rounds, double bound, int most, cudaGraphConditionalHandle h, bool node) {
  if (holds != nullptr && holds[0] != 1) return;
  double v = 0;
  for (long i = 0; i < m; ++i) v = u[i] > v ? u[i] : v;
  change[0] = v;
  ++rounds[0];
  if (node) cudaGraphSetConditional(h, v >= bound && rounds[0] < most);
}
__global__ void begin(int* rounds, cudaGraphConditionalHandle h) { rounds[0] = 0; cudaGraphSetConditional(h, 1); }
__global__ void decide(int* holds, const double* change, double bound) { holds[0] = change[0] >= bound; }
__global__ void count(int* left, cudaGraphConditionalHandle h) { --left[0]; cudaGraphSetConditional(h, left[0] > 0); }

int main(int argc, char** argv) {
  const int most = std::atoi(argv[1]);
  const double bound = std::atof(argv[2]);
  constexpr int runs = 300;
  std::vector<double> first(m);
  for (long i = 0; i < m; ++i) first[i] = (i * 37 % 100) / 100.0;
  double *u, *change, *seen;
  int *wanted, *holds, *rounds, *left;
  CHECK(cudaMalloc(&u, m * 8)); CHECK(cudaMalloc(&change, 8)); CHECK(cudaMalloc(&wanted, 4)); CHECK(cudaMalloc(&holds, 4 * most));
  CHECK(cudaMalloc(&rounds, 4)); CHECK(cudaMalloc(&left, 4)); CHECK(cudaMallocHost(&seen, 8));
  CHECK(cudaMemset(wanted, 0, 4));
  cudaStream_t s, t;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CHECK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  const cudaGraphConditionalHandle none{};
  const auto a_while = [](cudaGraph_t graph, cudaGraphConditionalHandle* h, cudaGraph_t* body, const cudaGraphNode_t* after, size_t n, cudaGraphNode_t* node, unsigned first) {
    CHECK(cudaGraphConditionalHandleCreate(h, graph, first, cudaGraphCondAssignDefault));
    cudaGraphNodeParams p{};
    p.type = cudaGraphNodeTypeConditional;
    p.conditional.handle = *h; p.conditional.type = cudaGraphCondTypeWhile; p.conditional.size = 1;
    CHECK(cudaGraphAddNode(node, graph, after, nullptr, n, &p));
    *body = p.conditional.phGraph_out[0];
  };
  cudaGraphExec_t nested = nullptr, unrolled = nullptr;
  {
    cudaGraph_t top, outer, inner;
    CHECK(cudaGraphCreate(&top, 0));
    cudaGraphConditionalHandle ho, hi;
    cudaGraphNode_t node, in;
    a_while(top, &ho, &outer, nullptr, 0, &node, 1);
    // The handle of the inner loop belongs to the graph that holds its node.
    CHECK(cudaGraphConditionalHandleCreate(&hi, outer, 1, cudaGraphCondAssignDefault));
    CHECK(cudaStreamBeginCaptureToGraph(s, outer, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    grow<<<1, 1, 0, s>>>(u, change, wanted);
    begin<<<1, 1, 0, s>>>(rounds, hi);
    cudaStreamCaptureStatus status; unsigned long long id; cudaGraph_t g; const cudaGraphNode_t* deps; const cudaGraphEdgeData* edges; size_t n;
    CHECK(cudaStreamGetCaptureInfo(s, &status, &id, &g, &deps, &edges, &n));
    cudaGraphNodeParams p{};
    p.type = cudaGraphNodeTypeConditional;
    p.conditional.handle = hi; p.conditional.type = cudaGraphCondTypeWhile; p.conditional.size = 1;
    CHECK(cudaGraphAddNode(&in, outer, deps, edges, n, &p));
    inner = p.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(t, inner, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    halve<<<4, 32, 0, t>>>(nullptr, u);
    largest<<<1, 1, 0, t>>>(nullptr, change, u, rounds, bound, most, hi, true);
    CHECK(cudaStreamEndCapture(t, &inner));
    CHECK(cudaStreamUpdateCaptureDependencies(s, &in, nullptr, 1, cudaStreamSetCaptureDependencies));
    count<<<1, 1, 0, s>>>(left, ho);
    CHECK(cudaStreamEndCapture(s, &outer));
    CHECK(cudaGraphInstantiate(&nested, top, 0));
  }
  {
    cudaGraph_t g, body;
    cudaGraphConditionalHandle h;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&g, 0));
    a_while(g, &h, &body, nullptr, 0, &node, 1);
    CHECK(cudaStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    grow<<<1, 1, 0, s>>>(u, change, wanted);
    for (int k = 0; k < most; ++k) {
      decide<<<1, 1, 0, s>>>(holds + k, change, bound);
      halve<<<4, 32, 0, s>>>(holds + k, u);
      largest<<<1, 1, 0, s>>>(holds + k, change, u, rounds, bound, most, none, false);
    }
    count<<<1, 1, 0, s>>>(left, h);
    CHECK(cudaStreamEndCapture(s, &body));
    CHECK(cudaGraphInstantiate(&unrolled, g, 0));
  }
  std::vector<double> want;
  for (const int way : {0, 1, 2}) {
    std::vector<double> times;
    int done = 0;
    for (int turn = 0; turn < 10; ++turn) {
      CHECK(cudaMemcpy(u, first.data(), m * 8, cudaMemcpyHostToDevice));
      CHECK(cudaMemset(rounds, 0, 4));
      CHECK(cudaMemcpy(left, &runs, 4, cudaMemcpyHostToDevice));
      CHECK(cudaDeviceSynchronize());
      const auto from = std::chrono::steady_clock::now();
      if (way == 1) CHECK(cudaGraphLaunch(nested, s));
      if (way == 2) CHECK(cudaGraphLaunch(unrolled, s));
      for (int r = 0; way == 0 && r < runs; ++r) {
        grow<<<1, 1, 0, s>>>(u, change, wanted);
        *seen = 1e30;
        for (int k = 0; k < most && *seen >= bound; ++k) {
          halve<<<4, 32, 0, s>>>(nullptr, u);
          largest<<<1, 1, 0, s>>>(nullptr, change, u, rounds, bound, most, none, false);
          CHECK(cudaMemcpyAsync(seen, change, 8, cudaMemcpyDeviceToHost, s));
          CHECK(cudaStreamSynchronize(s));
        }
      }
      CHECK(cudaStreamSynchronize(s));
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - from;
      if (turn > 0) times.push_back(took.count() / runs);
    }
    CHECK(cudaMemcpy(&done, rounds, 4, cudaMemcpyDeviceToHost));
    std::vector<double> got(m);
    CHECK(cudaMemcpy(got.data(), u, m * 8, cudaMemcpyDeviceToHost));
    if (way == 0) want = got;
    std::sort(times.begin(), times.end());
    std::printf("%s,%d,%g,%.3f,%.3f,%s,%.2f\n", way == 0 ? "host test" : way == 1 ? "nested while nodes" : "unrolled", most, bound, times[4], times[0],
                got == want ? "equal" : "different", way == 1 ? 0.0 : double(done) / runs);
  }
}
