// A while node with a body of one kernel that sets its condition: does a tool of compute-sanitizer run it at all?
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#define GOOD(call) do { if (const cudaError_t s = (call); s != cudaSuccess) { std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(s)); std::exit(1); } } while (0)
__global__ void down(int* left, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, --*left > 0); }
__global__ void add(int* x) { ++*x; }
int main(int argc, char** argv) {
  const int copies = argc > 1 ? std::atoi(argv[1]) : 0;  // copies of memory at the begin of the body
  int *left, *x, *other, first = 10, got = 0;
  GOOD(cudaMalloc(&left, 4)); GOOD(cudaMalloc(&x, 4)); GOOD(cudaMalloc(&other, 4));
  GOOD(cudaMemcpy(left, &first, 4, cudaMemcpyHostToDevice)); GOOD(cudaMemset(x, 0, 4));
  cudaStream_t stream; GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph; GOOD(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle; GOOD(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams node{}; node.type = cudaGraphNodeTypeConditional; node.conditional.handle = handle; node.conditional.type = cudaGraphCondTypeWhile; node.conditional.size = 1;
  cudaGraphNode_t added; GOOD(cudaGraphAddNode(&added, graph, nullptr, nullptr, 0, &node));
  cudaGraph_t body = node.conditional.phGraph_out[0];
  GOOD(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  for (int k = 0; k < copies; ++k) GOOD(cudaMemcpyAsync(other, x, 4, cudaMemcpyDefault, stream));
  add<<<1, 1, 0, stream>>>(x);
  down<<<1, 1, 0, stream>>>(left, handle);
  GOOD(cudaStreamEndCapture(stream, &body));
  cudaGraphExec_t exec; GOOD(cudaGraphInstantiate(&exec, graph, 0));
  GOOD(cudaGraphUpload(exec, stream));
  GOOD(cudaGraphLaunch(exec, stream));
  GOOD(cudaStreamSynchronize(stream));
  GOOD(cudaMemcpy(&got, x, 4, cudaMemcpyDeviceToHost));
  std::printf("%d runs\n", got);
}
