// The command line of an emitted program: typed options, --help, and errors with help.
//
//   std::string data; double seconds = 0.01; bool check_only = false;
//   dagc::Options options("bench", "Runs and times the program.");
//   options.text("--data", "DIR", &data, "arrays, from `dagc setup`").required();
//   options.number("--seconds", "S", &seconds, "length of a measurement", 1e-6, 3600.0);
//   options.flag("--check-only", &check_only, "check the results, time nothing");
//   options.parse(argc, argv);          // ends the program after --help (0) and errors (2)
//
// `--name=value` and `--name value` are the same. Under mpiexec only the first rank prints.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dagc/check.hpp"

namespace dagc {

// Rank given by the launcher, before MPI_Init; 0 if there is none.
inline int launcher_rank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

class Options {
 public:
  Options(std::string program, std::string summary) : program_(std::move(program)), summary_(std::move(summary)) {}

  // Present or not.
  Options& flag(const char* name, bool* target, const char* help) {
    return add({name, "", help, false, false, [target](const std::string&) {
                  *target = true;
                  return std::string();
                }});
  }

  Options& text(const char* name, const char* metavar, std::string* target, const char* help) {
    return add({name, metavar, help, false, false, [target](const std::string& value) {
                  *target = value;
                  return std::string(value.empty() ? "must not be empty" : "");
                }});
  }

  // A whole number in [low, high].
  Options& integer(const char* name, const char* metavar, std::int64_t* target, const char* help,
                   std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                   std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    return add({name, metavar, help, false, false, [=](const std::string& value) {
                  char* end = nullptr;
                  errno = 0;
                  const long long parsed = std::strtoll(value.c_str(), &end, 10);
                  if (value.empty() || *end || errno) return "'" + value + "' is not a whole number";
                  if (parsed < low) return "must be at least " + std::to_string(low);
                  if (parsed > high) return "must be at most " + std::to_string(high);
                  *target = parsed;
                  return std::string();
                }});
  }

  // A finite number in [low, high].
  Options& number(const char* name, const char* metavar, double* target, const char* help,
                  double low = std::numeric_limits<double>::lowest(),
                  double high = std::numeric_limits<double>::max()) {
    return add({name, metavar, help, false, false, [=](const std::string& value) {
                  char* end = nullptr;
                  const double parsed = std::strtod(value.c_str(), &end);
                  if (value.empty() || *end || !std::isfinite(parsed)) return "'" + value + "' is not a number";
                  if (parsed < low) return "must be at least " + short_text(low);
                  if (parsed > high) return "must be at most " + short_text(high);
                  *target = parsed;
                  return std::string();
                }});
  }

  // The option added last must be given.
  Options& required() {
    options_.back().required = true;
    return *this;
  }

  // The error, with its help, or "" if there is none; sets `help` if --help was given.
  std::string try_parse(int argc, const char* const* argv, bool* help) {
    *help = false;
    for (int i = 1; i < argc; ++i) {
      std::string name = argv[i], value;
      if (name == "--help" || name == "-h") {
        *help = true;
        return "";
      }
      const std::size_t equals = name.find('=');
      const bool joined = name.compare(0, 2, "--") == 0 && equals != std::string::npos;
      if (joined) {
        value = name.substr(equals + 1);
        name.resize(equals);
      }
      Option* option = find(name);
      if (!option) return unknown(name);
      if (option->metavar.empty() && joined) return name + " takes no value";
      if (!option->metavar.empty() && !joined) {
        if (i + 1 == argc || find(argv[i + 1])) return name + " needs a value: " + name + " " + option->metavar;
        value = argv[++i];
      }
      const std::string error = option->set(value);
      if (!error.empty()) return name + ": " + error;
      option->given = true;
    }
    for (const Option& o : options_)
      if (o.required && !o.given) return o.name + " is missing: " + o.name + " " + o.metavar + " (" + o.help + ")";
    return "";
  }

  // Ends the program with 0 after --help, with 2 after an error.
  void parse(int argc, const char* const* argv) {
    bool help = false;
    const std::string error = try_parse(argc, argv, &help);
    const bool speak = launcher_rank() == 0;
    if (help) {
      if (speak) std::fputs(help_text().c_str(), stdout);
      std::exit(exit_good);
    }
    if (error.empty()) return;
    if (speak) std::fprintf(stderr, "%s: %s\n  help: %s --help lists all options\n", program_.c_str(), error.c_str(), program_.c_str());
    std::exit(exit_bad_input);
  }

  std::string help_text() const {
    std::string out = "usage: " + program_ + " [options]\n\n" + summary_ + "\n\noptions:\n";
    std::size_t width = 10;
    for (const Option& o : options_) width = std::max(width, label(o).size());
    for (const Option& o : options_) out += line(label(o), o.help + (o.required ? " (required)" : ""), width);
    return out + line("-h, --help", "this text", width);
  }

 private:
  struct Option {
    std::string name, metavar, help;
    bool required, given;
    std::function<std::string(const std::string&)> set;  // returns the error, "" if there is none
  };

  Options& add(Option option) {
    options_.push_back(std::move(option));
    return *this;
  }

  Option* find(const std::string& name) {
    for (Option& o : options_)
      if (o.name == name) return &o;
    return nullptr;
  }

  // Suggests the known option with the longest common prefix.
  std::string unknown(const std::string& name) const {
    if (name.compare(0, 1, "-") != 0) return "unexpected argument '" + name + "'";
    std::string near;
    std::size_t best = 3;
    for (const Option& o : options_) {
      std::size_t common = 0;
      while (common < name.size() && common < o.name.size() && name[common] == o.name[common]) ++common;
      if (common > best) best = common, near = o.name;
    }
    return "unknown option " + name + (near.empty() ? "" : "; did you mean " + near + "?");
  }

  static std::string label(const Option& o) { return o.name + (o.metavar.empty() ? "" : " " + o.metavar); }
  static std::string line(const std::string& label, const std::string& help, std::size_t width) {
    return "  " + label + std::string(width - label.size() + 2, ' ') + help + "\n";
  }
  static std::string short_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
  }

  std::string program_, summary_;
  std::vector<Option> options_;
};

}  // namespace dagc
