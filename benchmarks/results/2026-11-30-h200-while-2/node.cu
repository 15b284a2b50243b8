// A graph of a kernel whose threads meet, and of one that counts, once launched ten times, once as the body of a while node: what do the tools of
// compute-sanitizer say of each?   node 0|1 (while node) 0|1 (threads meet)
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#define GOOD(call) do { if (const cudaError_t s = (call); s != cudaSuccess) { std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(s)); std::exit(1); } } while (0)
__global__ void down(int* left, cudaGraphConditionalHandle handle, bool node) {
  --*left;
  if (node) cudaGraphSetConditional(handle, *left > 0);
}
__global__ void add(int* x) { ++*x; }
__global__ void add_meeting(int* x) {
  __shared__ int s[64];
  s[threadIdx.x] = 1;
  for (int d = 32; d > 0; d /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < d) s[threadIdx.x] += s[threadIdx.x + d];
  }
  if (threadIdx.x == 0) *x += s[0] / 64;
}
int main(int argc, char** argv) {
  const bool node = std::atoi(argv[1]), meets = std::atoi(argv[2]);
  int *left, *x, first = 10, got = 0;
  GOOD(cudaMalloc(&left, 4)); GOOD(cudaMalloc(&x, 4));
  GOOD(cudaMemcpy(left, &first, 4, cudaMemcpyHostToDevice)); GOOD(cudaMemset(x, 0, 4));
  cudaStream_t stream; GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph, body; GOOD(cudaGraphCreate(&graph, 0));
  body = graph;
  cudaGraphConditionalHandle handle{};
  if (node) {
    GOOD(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams p{}; p.type = cudaGraphNodeTypeConditional; p.conditional.handle = handle; p.conditional.type = cudaGraphCondTypeWhile; p.conditional.size = 1;
    cudaGraphNode_t added; GOOD(cudaGraphAddNode(&added, graph, nullptr, nullptr, 0, &p));
    body = p.conditional.phGraph_out[0];
  }
  GOOD(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  if (meets) add_meeting<<<1, 64, 0, stream>>>(x);
  else add<<<1, 1, 0, stream>>>(x);
  down<<<1, 1, 0, stream>>>(left, handle, node);
  GOOD(cudaStreamEndCapture(stream, &body));
  cudaGraphExec_t exec; GOOD(cudaGraphInstantiate(&exec, graph, 0));
  GOOD(cudaGraphUpload(exec, stream));
  for (int k = 0; k < (node ? 1 : 10); ++k) GOOD(cudaGraphLaunch(exec, stream));
  GOOD(cudaStreamSynchronize(stream));
  GOOD(cudaMemcpy(&got, x, 4, cudaMemcpyDeviceToHost));
  std::printf("%d runs\n", got);
}
