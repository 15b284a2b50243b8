// Two libraries of dagc in one process, on the application's arrays and communicator. README.md says how they are made.
#include <cmath>

#include "heat.hpp"
#include "own.hpp"
#include "spmv.hpp"

int main(int argc, char** argv) {
  int level = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  take_gpu(rank);
  const int n = 1000, up = rank - 1, down = rank + 1 < ranks ? rank + 1 : -1;
  const auto value = [&](int i) { return static_cast<float>(std::sin(0.01 * (rank * n + i))); };

  // y = A x: the 1-D Laplacian. The first and the last row need a value of a neighbour.
  std::vector<int> start_l{0}, col_l, start_r{0}, col_r, send_index, peers;
  std::vector<float> x, val_l;
  for (int i = 0; i < n; ++i) {
    x.push_back(value(i));
    for (int j = std::max(0, i - 1); j <= std::min(n - 1, i + 1); ++j) col_l.push_back(j), val_l.push_back(j == i ? 2 : -1);
    start_l.push_back(static_cast<int>(col_l.size()));
    for (const auto& [row, peer] : {std::pair{0, up}, std::pair{n - 1, down}})
      if (i == row && peer >= 0) col_r.push_back(static_cast<int>(peers.size())), send_index.push_back(row), peers.push_back(peer);
    start_r.push_back(static_cast<int>(col_r.size()));
  }
  const int edges = static_cast<int>(peers.size());
  const std::vector<int> ones(peers.size(), 1);
  Own<float> own_x(x), own_val_l(val_l), own_val_r(std::vector<float>(peers.size(), -1)), y(std::vector<float>(n, 0));
  Own<int> own_start_l(start_l), own_start_r(start_r), own_col_l(col_l), own_col_r(col_r), own_index(send_index);

  // A plate of `rows` rows on each rank between two ghost rows: its first column is warm.
  const std::int64_t columns = 512, rows = 128, size = (rows + 2) * columns;
  std::vector<double> plate(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < plate.size(); i += columns) plate[i] = 1;
  Own<double> u0(plate), u1(plate), result(std::vector<double>(static_cast<std::size_t>(rows * columns)));
  int failed = 0;
  try {
    spmv::Arrays a{};
    a.x_l = {own_x.data(), n}, a.y = {y.data(), n};
    a.row_ptr_l = {own_start_l.data(), n + 1}, a.row_ptr_r = {own_start_r.data(), n + 1};
    a.col_l = {own_col_l.data(), own_col_l.size()}, a.col_r = {own_col_r.data(), edges};
    a.val_l = {own_val_l.data(), own_val_l.size()}, a.val_r = {own_val_r.data(), edges};
    a.send_index = {own_index.data(), edges}, a.send_ranks = a.recv_ranks = {peers.data(), edges};
    a.send_counts = a.recv_counts = {ones.data(), edges};
    spmv::Instance product(MPI_COMM_WORLD, {n, edges, edges, edges, edges}, a);
    heat::Instance diffusion(MPI_COMM_WORLD, {columns, rows, up, down}, {{u0.data(), size}, {u1.data(), size}, {result.data(), rows * columns}});
    for (int step = 0; step < 10; ++step) product.run(), diffusion.run(2);
    const auto at = [&](int i) { return rank * n + i < 0 || rank * n + i >= ranks * n ? 0.f : value(i); };
    for (int i = 0; i < n; ++i) failed |= std::abs(y.values()[i] - (2 * at(i) - at(i - 1) - at(i + 1))) > 1e-5f;
    failed |= !(result.values()[rows / 2 * columns + 1] > 0.5 && result.values()[columns - 1] == 0);
    std::printf("rank %d: %s\n", rank, failed ? "wrong" : "right");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    failed = 1;
  }
  MPI_Finalize();
  return failed;
}
