// Failures of a run: one clear line, then an exit code that mpiexec passes on.
//
//   DAGC_CUDA(cudaMalloc(&p, n));   DAGC_MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));   dagc::fail(1, "y differs");
//
// Define DAGC_LIBRARY to get an exception instead of the end of the program. Define DAGC_NO_MPI to use this header (and
// npy.hpp, options.hpp) in a program without MPI.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#ifndef DAGC_NO_MPI
#include <mpi.h>
#endif

#include "dagc/fault.hpp"
#include "dagc/in_flight.hpp"

namespace dagc {

// Exit codes, the same as those of the `dagc` command.
enum ExitCode { exit_good = 0, exit_wrong_result = 1, exit_bad_input = 2, exit_missing = 3, exit_run_failed = 5 };

// From some time on.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#ifndef DAGC_NO_MPI
// True between MPI_Init and MPI_Finalize.
inline bool mpi_running() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  if (initialised) MPI_Finalized(&finalised);
  return initialised && !finalised;
}
#endif

#ifdef DAGC_LIBRARY

// In a library that an application links, a failure is an exception, which the functions of its C interface catch.
struct Failure {
  int code;
  std::string text;
};

[[noreturn]] inline void fail(int exit_code, const std::string& message) { throw Failure{exit_code, message}; }

#else

// "dagc: rank R: message" on stderr ("dagc: message" outside MPI), then the end of all ranks with `exit_code`.
// May be called from any thread; no destructors run, since the threads of the streams may still run.
[[noreturn]] inline void fail(int exit_code, const std::string& message) {
  std::fflush(stdout);
#ifndef DAGC_NO_MPI
  if (mpi_running()) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "dagc: rank %d: %s\n", rank, message.c_str());
    std::fflush(stderr);
    // mpiexec reads output and aborts of ranks from different sources, and loses output that it has not read at the
    // abort.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    end_op();  // MPI_Abort calls exit, which would report it again
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }
#endif
  std::fprintf(stderr, "dagc: %s\n", message.c_str());
  std::fflush(stderr);
  std::_Exit(exit_code);
}

#endif

// As `fail`, of what every rank finds: the first one says it, and the others only if it does not end them.
[[noreturn]] inline void fail_alike(int exit_code, const std::string& message) {
#if !defined(DAGC_NO_MPI) && !defined(DAGC_LIBRARY)
  int rank = 0;
  if (mpi_running()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(2));
#endif
  fail(exit_code, message);
}

// The number in a variable of the environment, `otherwise` if it is not set or empty. One that is below `least` or, if `whole`,
// has a fraction is a failure.
inline double number_of(const char* variable, double otherwise, double least, bool whole) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (*end == 0 && number >= least && number <= 1e9 && (!whole || number == static_cast<double>(static_cast<long>(number)))) return number;
  fail_alike(exit_bad_input, std::string(variable) + "=" + text + " is not a" + (whole ? " whole" : "") + " number from " +
                                 std::to_string(static_cast<int>(least)) + " to 1e9; give one, or unset the variable");
}

[[noreturn]] inline void call_failed(const char* file, int line, const char* call, const std::string& reason) {
  fail(exit_run_failed, std::string(file) + ":" + std::to_string(line) + ": " + call + " failed: " + reason);
}

#ifndef DAGC_NO_MPI
[[noreturn]] inline void mpi_failed(int status, const char* file, int line, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  call_failed(file, line, call, text);
}
#endif

}  // namespace dagc

// Works with the CUDA runtime and with the host target's replacement, which has the same names.
#define DAGC_CUDA(call)                                                                       \
  do {                                                                                        \
    const auto dagc_status = (call);                                                          \
    if (dagc_status != cudaSuccess)                                                           \
      ::dagc::call_failed(__FILE__, __LINE__, #call, cudaGetErrorString(dagc_status));        \
  } while (0)

// MPI must return errors instead of aborting: dagc::Mpi (message.hpp) arranges this.
// Accesses by MPI itself are hidden from ThreadSanitizer; message buffers are annotated instead (in_flight.hpp).
#define DAGC_MPI(call)                                                                        \
  do {                                                                                        \
    const ::dagc::tsan::Ignore dagc_ignore;                                                   \
    const int dagc_status = (call);                                                           \
    if (dagc_status != MPI_SUCCESS) ::dagc::mpi_failed(dagc_status, __FILE__, __LINE__, #call); \
  } while (0)
