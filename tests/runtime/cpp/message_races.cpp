// message_races HOW BYTES: a ring exchange beside a thread that plays a stream. Under ThreadSanitizer `right` must be
// silent, and every other HOW lacks one order, so the tool must speak, whatever the timing was.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "dagc/message.hpp"

namespace {

// A stream of one thread: ops run in order; what is issued happens before the op; only sync() orders the CPU after it.
class Stream {
 public:
  template <class F>
  void run(F op) {
    thread_ = std::thread(op);
  }
  void sync() { thread_.join(); }
  // Wait until the op has surely run, without an order that the tool could see.
  void pass_time() const { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

 private:
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "right";
  const std::size_t bytes = argc > 2 ? static_cast<std::size_t>(std::atoll(argv[2])) : 1 << 20;
  dagc::Mpi mpi(&argc, &argv);
  const int right = (mpi.rank() + 1) % mpi.ranks(), left = (mpi.rank() + mpi.ranks() - 1) % mpi.ranks();
  std::vector<char> out(bytes), in(bytes), sums(3);
  dagc::Requests sends, receives;
  volatile char sink = 0;
  for (int iteration = 0; iteration < 3; ++iteration) {
    Stream pack, other, unpack;
    pack.run([&] { std::memset(out.data(), 1 + iteration, bytes); });
    // Either the CPU waits for the pack, or time passes that no rule relies on.
    if (how != "no sync before send") pack.sync();
    else pack.pass_time();
    dagc::post_recv(receives, in.data(), static_cast<std::int64_t>(bytes), left, 0, MPI_COMM_WORLD);
    dagc::post_send(sends, out.data(), static_cast<std::int64_t>(bytes), right, 0, MPI_COMM_WORLD);
    if (how == "write before wait_send" || how == "synced write before wait_send") {
      other.run([&] { out[bytes / 2] = 9; });
      if (how == "write before wait_send") other.pass_time();
      else other.sync();  // in order with the CPU, but the message may still be read
    }
    if (how == "cpu write before wait_send") out[0] = 9;
    if (how == "read before wait_recv" || how == "synced read before wait_recv") {
      other.run([&] { sink = in[bytes - 1]; });
      if (how == "read before wait_recv") other.pass_time();
      else other.sync();
    }
    if (how == "right") {  // others may read what is sent
      other.run([&] { sink = out[bytes / 2]; });
      other.sync();
    }
    dagc::wait_all(receives);
    unpack.run([&] { sink = in[0]; });
    dagc::wait_all(sends);
    unpack.sync();
    if (how == "no sync before send") pack.sync();
    if (how == "write before wait_send" || how == "read before wait_recv") other.sync();
    if (how == "no sync before receive") {
      unpack.run([&] { sink = in[bytes / 2]; });
      dagc::post_recv(receives, in.data(), static_cast<std::int64_t>(bytes), left, 1, MPI_COMM_WORLD);
      dagc::post_send(sends, out.data(), static_cast<std::int64_t>(bytes), right, 1, MPI_COMM_WORLD);
      dagc::wait_all(sends);
      dagc::wait_all(receives);
      unpack.sync();
    }
    dagc::post_allreduce(sends, sums.data(), sums.data(), 3, MPI_MAX, MPI_COMM_WORLD);
    if (how == "write before collective's wait") sums[1] = 2;
    dagc::wait_all(sends);
  }
  (void)sink;
}
