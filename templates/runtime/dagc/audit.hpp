// One run, op by op, that checks the assumptions of the proof: each kernel changes only what its header declares
// as written, and parts without bounds are disjoint, as declared.
//
// Each op ends before the next one begins, so the findings do not depend on timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dagc/store.hpp"

namespace dagc {

// Two ops without an order between them that write different parts of one array.
struct Promise {
  std::int32_t first, second;      // ops
  const char* array;
  const char* first_part;
  const char* second_part;
};

// What a program declares about its ops.
template <class Program>
struct Declared {
  bool (*kernel)(std::int32_t op);                                 // others are not checked
  std::vector<Range> (*writes)(const Program&, std::int32_t op);   // what a kernel may change, including messages in flight
  std::vector<Promise> promises;
};

// Watches the ops of one run. Call `before` and `after` around each kernel, with the device at rest.
template <class Program>
class Audit {
 public:
  Audit(Program& program, const Declared<Program>& declared) : program_(program), declared_(declared) {}

  void before(std::int32_t op) {
    ranges_ = declared_.writes(program_, op);
    digests_ = program_.store.digests_without(ranges_);
    data_.clear();
    for (std::size_t i = 0; i < digests_.size(); ++i) data_.push_back(program_.store.data(i));
    promised_.clear();
    for (const Promise& p : declared_.promises)
      if ((p.first == op || p.second == op) && promised_.insert(p.array).second) program_.store.contents(p.array, contents_[p.array]);
  }

  void after(std::int32_t op, const char* name) {
    const std::vector<std::uint64_t> now = program_.store.digests_without(ranges_);
    for (std::size_t i = 0; wrong_.empty() && i < now.size(); ++i)
      if (now[i] != digests_[i] && program_.store.data(i) == data_[i]) wrong_ = undeclared(name, i);
    const std::vector<std::string> overrun = program_.store.overrun();
    if (wrong_.empty() && !overrun.empty())
      wrong_ = std::string("op `") + name + "` writes " + overrun.front();
    for (const std::string& array : promised_) {
      program_.store.contents(array, now_);
      written_[{op, array}] = program_.store.differ(array, contents_[array], now_);
    }
  }

  // "" if every op did what its header declares, else the violation. `name` gives the name of an op.
  template <class Name>
  std::string wrong(Name name) const {
    if (!wrong_.empty()) return wrong_;
    for (const Promise& p : declared_.promises) {
      const auto first = written_.find({p.first, p.array}), second = written_.find({p.second, p.array});
      if (first == written_.end() || second == written_.end()) continue;
      for (std::size_t i = 0; i < first->second.size() && i < second->second.size(); ++i)
        if (const std::uint64_t both = first->second[i] & second->second[i])
          return std::string("ops `") + name(p.first) + "` and `" + name(p.second) + "` both change element " +
                 program_.store.element(p.array, 64 * i + static_cast<std::size_t>(__builtin_ctzll(both))) + " of `" + p.array +
                 "`, and no edge orders them: parts `" + p.first_part + "` and `" + p.second_part + "` overlap";
    }
    return "";
  }

 private:
  std::string undeclared(const char* op, std::size_t array) const {
    const std::string what = std::string("op `") + op + "` changes `" + program_.store.name(array) + "`";
    for (const Range& r : ranges_)
      if (r.data == program_.store.data(array)) return what + " outside of the slice that it is given to write";
    return what + ", which the header of its kernel does not declare as written";
  }

  Program& program_;
  const Declared<Program>& declared_;
  std::vector<Range> ranges_;
  std::vector<std::uint64_t> digests_;
  std::vector<const void*> data_;  // memory that the op itself has allocated, for its own arrays, had no contents before
  std::set<std::string> promised_;  // the arrays of the promises of an op, and below what they had before it
  std::map<std::string, std::vector<char>> contents_;
  std::vector<char> now_;
  std::map<std::pair<std::int32_t, std::string>, std::vector<std::uint64_t>> written_;  // elements, a bit for each
  std::string wrong_;
};

}  // namespace dagc
