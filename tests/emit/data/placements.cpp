// Runs a traversal under a placement, every other one with early copies, for each line of a file: the mutant of the runtime (0: none), the numbers of the variants,
// `|`, and the rows of a table with semicolons. Or times five launches of the first op, and counts the copies between the sides
// meanwhile: `time`, its variant, and whether from the host to the host.
#include <fstream>
#include <sstream>

static int mutant = 0;
static bool mutated(int which) { return mutant == which; }
static int copies = 0;

#include "runner.cpp"

static void time_first(std::int64_t variant, std::int32_t transfers) {
  char message[500] = "";
  double seconds[5];
  dagc_runner_reset();
  dagc_runner_set("first.variant", variant);
  int bad = dagc_runner_keep(0, message, sizeof message);
  if (bad == 0) bad = dagc_runner_again(0, 0, 0, message, sizeof message);
  copies = 0;
  const std::int64_t n = dagc_runner_time(0, 0, 1e3, 5, 5, 0, transfers, seconds);
  if (open_runner->program().rank == 0)
    std::printf("%s: %d launches, %d copies\n", bad ? message : dagc_runner_op_name(0), static_cast<int>(n), copies);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  dagc_runner_open(argv[1], MPI_Comm_c2f(MPI_COMM_WORLD), 0);
  std::ifstream file(argv[2]);
  int wrong = 0, number = 0;
  for (std::string line; std::getline(file, line); ++number) {
    std::istringstream text(line);
    if (std::string word; line[0] == 't') {
      std::int64_t variant;
      std::int32_t transfers;
      text >> word >> variant >> transfers;
      time_first(variant, transfers);
      continue;
    }
    text >> mutant;
    for (const char* op : {"first", "second", "half", "rest", "only", "last"}) {
      std::int64_t variant;
      text >> variant;
      if (dagc_runner_set((std::string(op) + ".variant").c_str(), variant) != 0) return 64;
    }
    std::vector<std::int32_t> rows;
    char sign = 0;
    for (text >> sign; sign == '|' || sign == ';' || sign == ','; text >> sign) {
      std::int32_t value;
      text >> value;
      rows.push_back(value);
      sign = 0;
    }
    open_runner->program().early = number % 2 == 1;
    char message[500] = "";
    const std::int64_t table = dagc_runner_prepare(rows.data(), static_cast<std::int64_t>(rows.size() / 3), message, sizeof message);
    bool bad = table < 0;
    if (!bad && mutant == 0) bad = dagc_runner_audit(table, message, sizeof message) != 0;  // first: no side is allocated yet
    for (int poison = 0; poison < 2 && !bad; ++poison) bad = dagc_runner_check(table, poison, 1, message, sizeof message) != 0;
    wrong += bad;
    if (open_runner->program().rank == 0) std::printf("%d: %s\n", number, bad ? message : "good");
    if (table >= 0) dagc_runner_release(table);
  }
  dagc_runner_close();
  MPI_Finalize();
  return wrong != 0;
}
