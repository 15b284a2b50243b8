// Ends a rank that waits for others which it cannot reach, such as behind a firewall, and says what was tried:
//
//   dagc: rank 1 on b: NCCL has not connected the ranks on a, b after 30 s, by eth0, ib0; NCCL_IB_DISABLE=1
//
//   {
//     const dagc::Connecting limit(mpi, "NCCL", 30.0);   // collective
//     work();                                            // may never return
//   }
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "dagc/check.hpp"
#include "dagc/tsan.hpp"

namespace dagc {

// Seconds from the variable DAGC_CONNECT_SECONDS; 0: no limit.
inline double seconds_to_connect() { return number_of("DAGC_CONNECT_SECONDS", 30, 0, false); }

class Connecting {
 public:
  Connecting(MPI_Comm mpi, const char* what, double seconds) : what_(what), seconds_(seconds) {
    int ranks = 1, length = 0;
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    DAGC_MPI(MPI_Comm_rank(mpi, &rank_));
    DAGC_MPI(MPI_Comm_size(mpi, &ranks));
    DAGC_MPI(MPI_Get_processor_name(name, &length));
    here_ = name;
    std::vector<char> names(static_cast<std::size_t>(ranks) * sizeof name);
    DAGC_MPI(MPI_Allgather(name, sizeof name, MPI_CHAR, names.data(), sizeof name, MPI_CHAR, mpi));
    for (int rank = 0; rank < ranks; ++rank) hosts_.insert(&names[static_cast<std::size_t>(rank) * sizeof name]);
    if (seconds > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Connecting() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      connected_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

 private:
  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto end = std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(seconds_));
    if (changed_.wait_until(lock, end, [this] { return connected_; })) return;
    std::string hosts;
    for (const std::string& host : hosts_) hosts += (hosts.empty() ? "" : ", ") + host;
    std::fprintf(stderr, "dagc: rank %d on %s: %s has not connected the ranks on %s after %g s, by %s%s\n", rank_, here_.c_str(), what_,
                 hosts.c_str(), seconds_, interfaces().c_str(), variables().c_str());
    std::fflush(stderr);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the other ranks write theirs, and the starter reads them
    const tsan::Ignore ignore;
    MPI_Abort(MPI_COMM_WORLD, exit_run_failed);
    std::_Exit(exit_run_failed);
  }

  // Network interfaces that are up: `eth0, ib0`.
  static std::string interfaces() {
    std::string out, line;
    std::ifstream all("/proc/net/dev");
    while (std::getline(all, line)) {
      const std::size_t colon = line.find(':'), first = line.find_first_not_of(' ');
      if (colon == std::string::npos || first >= colon) continue;  // a heading
      const std::string name = line.substr(first, colon - first);
      std::string state;
      std::ifstream("/sys/class/net/" + name + "/operstate") >> state;
      if (name != "lo" && state != "down") out += (out.empty() ? "" : ", ") + name;
    }
    return out.empty() ? "no interface but loopback" : out;
  }

  static std::string variables() {
    std::string out;
    for (const char* name : {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_P2P_DISABLE"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) out += std::string("; ") + name + "=" + value;
    }
    return out + "; NCCL_SOCKET_IFNAME chooses interfaces, NCCL_DEBUG=INFO says more";
  }

  const char* const what_;
  const double seconds_;
  int rank_ = 0;
  std::string here_;
  std::set<std::string> hosts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool connected_ = false;
  std::thread thread_;
};

}  // namespace dagc
