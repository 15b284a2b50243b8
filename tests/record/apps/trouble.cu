// Steps of a vector, each of which does one thing that no program of dagc does: by name, the second argument.
#include <cuda_runtime.h>
#include <curand.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#ifdef __has_include
#if __has_include(<dagc_record.h>)
#include <dagc_record.h>
#endif
#endif

__global__ void add(double* x, int n, int step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += step;
}

// A kernel whose text is in no file of the application: made by a macro.
#define KERNEL(name) __global__ void name(double* x, int n) { x[threadIdx.x % n] += 1; }
KERNEL(made)
static void hidden(double* x, int n) { made<<<1, 64>>>(x, n); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = 64;
  const char* what = argc > 1 ? argv[1] : "";
  const auto is = [&](const char* name) { return std::strcmp(what, name) == 0; };
  double *x, *managed, host[8] = {};
  cudaMalloc(&x, n * sizeof(double));
  cudaMemset(x, 0, n * sizeof(double));
  if (is("managed")) cudaMallocManaged(&managed, 64);
  MPI_Datatype column;
  const int lengths[] = {1, 2}, places[] = {0, 2};
  MPI_Type_indexed(2, lengths, places, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  MPI_Request request;
  curandGenerator_t random;
  curandCreateGenerator(&random, CURAND_RNG_PSEUDO_DEFAULT);
  if (is("random")) curandGenerateNormalDouble(random, x, n, 0, 1);  // before the loop a library may do anything
  MPI_Win window;
  const int threads = is("calls") ? 64 + getpid() % 512 : 64;
  for (int t = 0; t < (is("once") ? 1 : 8); ++t) {
#ifdef DAGC_RECORD_MARK
    if (is("mark") && rank == 0 && t == 3) DAGC_RECORD_BEGIN();
#endif
    const int beyond = is("crash") && t == 5;
    if (is("wait") && t == 5) sleep(600);
    if (is("exit") && t == 5) MPI_Abort(MPI_COMM_WORLD, 3);
    const auto launch = [&] { add<<<1, threads>>>(x + beyond, n, is("values") ? getpid() : 1); };
    if (is("thread"))
      std::thread(launch).join();
    else
      launch();
    if (is("fork")) {
      const pid_t child = fork();
      if (child == 0) launch();
      if (child == 0) _exit(0);
      waitpid(child, nullptr, 0);
    }
    if (is("grows") || is("leaks")) {
      double* more;
      cudaMalloc(&more, (n + (is("grows") ? t : 0)) * sizeof *more);
      add<<<1, 64>>>(more, n, 1);
      if (is("grows")) cudaFree(more);
    }
    if (is("scan")) MPI_Scan(host, host + 4, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
    if (is("devices")) cudaSetDevice(t % 2);
    if (is("graph")) {
      cudaStream_t stream;
      cudaGraph_t graph;
      cudaStreamCreate(&stream);
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
      add<<<1, 64, 0, stream>>>(x, n, 1);
      cudaStreamEndCapture(stream, &graph);
    }
    if (is("hidden")) hidden(x, n);
    if (is("random")) curandGenerateUniformDouble(random, x, n);
    if (is("derived"))
      MPI_Sendrecv(host, 1, column, rank, 0, host + 4, 1, column, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (is("persistent")) {
      MPI_Send_init(host, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
    }
    if (is("window")) {
      MPI_Win_create(host, sizeof host, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
      MPI_Win_free(&window);
    }
  }
  cudaDeviceSynchronize();
  MPI_Finalize();
}
