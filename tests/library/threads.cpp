// Two threads, each with an instance of both libraries on its own communicator.
#include <cstdio>
#include <thread>
#include <vector>

#include "dagc/target.hpp"  // streams of the host target
#include "heat.hpp"
#include "spmv.hpp"

namespace {

// 0 if the results are right.
int work(MPI_Comm comm, int rank) {
  const int n = 100;
  std::vector<int> start_l, start_r(n + 1, 0), col_l, none;
  std::vector<float> x, val_l, y(n);
  for (int i = 0; i < n; ++i) {
    start_l.push_back(i);
    col_l.push_back(n - 1 - i);
    val_l.push_back(2);
    x.push_back(static_cast<float>(i));
  }
  start_l.push_back(n);
  start_r[n] = 1;  // the last row needs a value of the other rank
  const std::vector<int> col_r{0}, index{0}, other{1 - rank}, one{1};
  const std::vector<float> val_r{1};
  spmv::Arrays a{};
  a.x_l = {x.data(), n}, a.y = {y.data(), n};
  a.row_ptr_l = {start_l.data(), n + 1}, a.row_ptr_r = {start_r.data(), n + 1};
  a.col_l = {col_l.data(), n}, a.col_r = {col_r.data(), 1}, a.val_l = {val_l.data(), n}, a.val_r = {val_r.data(), 1};
  a.send_index = {index.data(), 1}, a.send_ranks = a.recv_ranks = {other.data(), 1};
  a.send_counts = a.recv_counts = {one.data(), 1};

  const std::int64_t columns = 16, rows = 8, size = (rows + 2) * columns;
  std::vector<double> u0(static_cast<std::size_t>(size), 1), u1 = u0, result(static_cast<std::size_t>(rows * columns));
  spmv::Instance product(comm, {n, 1, 1, 1, 1}, a);
  heat::Instance plate(comm, {columns, rows, rank - 1, rank == 0 ? 1 : -1},
                       {{u0.data(), size}, {u1.data(), size}, {result.data(), rows * columns}});
  for (int turn = 0; turn < 3; ++turn) {
    product.run(turn == 0 ? 1 : 40);
    plate.run(2);
  }
  // On a stream of the application, after what it has issued there.
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemsetAsync(y.data(), 0, y.size() * sizeof(float), stream);
  for (int turn = 0; turn < 3; ++turn) product.enqueue(stream);
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong |= y[static_cast<std::size_t>(i)] != static_cast<float>(2 * (n - 1 - i));
  for (double value : result) wrong |= value != 1;
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm comms[2];
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int wrong[2] = {1, 1};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) threads.emplace_back([&, t] { wrong[t] = work(comms[t], rank); });
  for (std::thread& thread : threads) thread.join();
  std::printf("rank %d: %s\n", rank, wrong[0] || wrong[1] ? "wrong" : "right");
  MPI_Finalize();
  return 0;
}
