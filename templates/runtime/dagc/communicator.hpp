// Further communicators of the program: its ranks, split by colour (MPI_Comm_split).
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/message.hpp"
#include "dagc/vote.hpp"

namespace dagc {

// On a rank that is in none, `comm` is MPI_COMM_NULL, `rank` is -1 and `ranks` is 0.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (comm != MPI_COMM_NULL && mpi_running()) MPI_Comm_free(&comm);
  }

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = -1;
  int ranks = 0;
  std::vector<int> members;  // the ranks of the program, by their ranks in this
  SelfCopies self_copies;
  Hosts hosts;  // once they are asked for
  int colour = -1, key = 0;

  // Collective over `all`. Ranks of one colour are together, by `key`, then by their rank; none if the colour is negative.
  void split(MPI_Comm all, const char* name, std::int64_t wanted_colour, std::int64_t wanted_key) {
    together(all, [&] {
      if (wanted_colour > INT_MAX || wanted_key < INT_MIN || wanted_key > INT_MAX)
        fail(exit_bad_input, "communicator `" + std::string(name) + "`: the colour " + std::to_string(wanted_colour) + " or the key " +
                                 std::to_string(wanted_key) + " does not fit an int");
    });
    colour = wanted_colour < 0 ? -1 : static_cast<int>(wanted_colour);
    key = static_cast<int>(wanted_key);
    DAGC_MPI(MPI_Comm_split(all, colour < 0 ? MPI_UNDEFINED : colour, key, &comm));
    if (comm == MPI_COMM_NULL) return;
    DAGC_MPI(MPI_Comm_rank(comm, &rank));
    DAGC_MPI(MPI_Comm_size(comm, &ranks));
    int mine = 0;
    DAGC_MPI(MPI_Comm_rank(all, &mine));
    members.resize(static_cast<std::size_t>(ranks));
    DAGC_MPI(MPI_Allgather(&mine, 1, MPI_INT, members.data(), 1, MPI_INT, comm));
  }

  // After `split`, collective over `all`: a duplicate of the application's communicator instead, with its attributes. It must
  // have the same ranks in the same order. `given`: whether this rank has one; all members have, or no rank has.
  void adopt(MPI_Comm all, const char* name, bool given, MPI_Comm theirs) {
    int any = given;
    DAGC_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, all));
    if (!any) return;
    together(all, [&] {
      const std::string why = difference(given, theirs);
      if (!why.empty()) fail(exit_bad_input, "communicator `" + std::string(name) + "`: " + why);
    });
    if (comm == MPI_COMM_NULL) return;
    MPI_Comm copy = MPI_COMM_NULL;
    DAGC_MPI(MPI_Comm_dup(theirs, &copy));
    DAGC_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    MPI_Comm_free(&comm);
    comm = copy;
  }

 private:
  // Why the application's communicator is not this one; "" if it is.
  std::string difference(bool given, MPI_Comm theirs) const {
    if (comm == MPI_COMM_NULL)
      return given && theirs != MPI_COMM_NULL ? "given on a rank that is not in it, since its colour is negative: give MPI_COMM_NULL" : "";
    if (!given) return "given on other ranks, and not on this one";
    if (theirs == MPI_COMM_NULL) return "MPI_COMM_NULL on a rank that is in it, with the colour " + std::to_string(colour);
    int between = 0, same = MPI_UNEQUAL, its_rank = 0, its_ranks = 0;
    DAGC_MPI(MPI_Comm_test_inter(theirs, &between));
    if (between) return "an intercommunicator";
    DAGC_MPI(MPI_Comm_compare(comm, theirs, &same));
    if (same == MPI_IDENT || same == MPI_CONGRUENT) return "";
    DAGC_MPI(MPI_Comm_rank(theirs, &its_rank));
    DAGC_MPI(MPI_Comm_size(theirs, &its_ranks));
    return "this is rank " + std::to_string(its_rank) + " of " + std::to_string(its_ranks) + " in the one given, and must be rank " +
           std::to_string(rank) + " of " + std::to_string(ranks) + (same == MPI_SIMILAR || its_ranks == ranks ? ", with the same ranks in the same order" : "");
  }
};

}  // namespace dagc
