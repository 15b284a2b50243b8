// See log.hpp.
#include "log.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace dagc::record {
namespace {

constexpr std::size_t kInline = 64;  // bytes of data that are in the event
constexpr std::size_t kBefore = 4;   // calls of a place whose data before the recorded rounds are kept

struct Memory {
  std::size_t bytes;
  std::string kind;
  long long event;    // which allocated it first
  std::string place;  // where it is allocated, with its size and kind
};

struct State {
  std::mutex mutex;
  std::FILE* file = nullptr;
  std::string folder;
  long long count = 0, from = -1, to = -1;
  std::size_t limit = 0, given_bytes = 0;
  int rank = 0;
  pthread_t first{};
  std::map<const char*, Memory> memory;
  std::map<std::string, std::set<long long>> unused;  // what was freed, by the places that allocated it
  std::map<long long, std::vector<char>> left;        // what it had, by the numbers of its first allocations
  std::map<std::string, std::deque<std::pair<long long, std::vector<char>>>> given;  // before the recorded rounds
  Device device;
  bool written[2] = {false, false};
  bool child = false;  // a forked process
};

// Never destroyed: events may come until the process ends.
State& state() {
  static State& all = *new State;
  return all;
}

thread_local const char* here_file = "";
thread_local int here_line = 0;
thread_local bool inside = false;  // a call that is recorded, or contents that are written: what it calls is not

void line(const std::string& text) {
  State& s = state();
  if (s.file == nullptr) return;
  const std::string whole = text + '\n';  // in one call: several threads write
  std::fwrite(whole.data(), 1, whole.size(), s.file);
}

std::vector<char> copy_of(const char* begin, const Memory& m) {
  const Device& device = state().device;
  std::vector<char> copy(m.bytes);
  if (device.read != nullptr && m.kind != "symbol")
    device.read(copy.data(), begin, m.bytes);
  else
    std::memcpy(copy.data(), begin, m.bytes);
  return copy;
}

// Whether an event is one of the recorded rounds.
bool in_rounds(long long number) {
  const State& s = state();
  return s.from >= 0 && number >= s.from && number < s.to;
}

void write(const std::string& name, const std::vector<char>& data) {
  std::ofstream(state().folder + "/" + name, std::ios::binary)
      .write(data.data(), static_cast<std::streamsize>(data.size()));
}

std::string data_file(long long number) {
  return "data-" + std::to_string(state().rank) + "-" + std::to_string(number) + ".bin";
}

// Writes the contents of all memory, each in a file named by the event that allocated it; of what is freed, what it had.
// Before the rounds, what the host gave to the last calls, too.
void contents(int which) {
  State& s = state();
  if (s.written[which]) return;
  s.written[which] = true;
  std::size_t total = 0;
  std::map<long long, std::vector<char>> all = s.left;
  for (const auto& [begin, m] : s.memory) total += m.bytes;
  for (const auto& [event, data] : s.left) total += data.size();
  if (s.limit != 0 && total > s.limit) {
    line("{\"e\": \"too-large\", \"bytes\": " + std::to_string(total) + "}");
    return;
  }
  if (s.device.wait != nullptr) s.device.wait();
  if (s.device.gpu != nullptr) line("{\"e\": \"gpu\", \"uuid\": " + quoted(s.device.gpu()) + "}");
  for (const auto& [begin, m] : s.memory) all[m.event] = copy_of(begin, m);
  const std::string head = "contents-" + std::to_string(which) + "-" + std::to_string(s.rank) + "-";
  for (const auto& [event, data] : all) write(head + std::to_string(event) + ".bin", data);
  for (const auto& [place, calls] : s.given)
    for (const auto& [number, data] : calls) write(data_file(number), data);
  s.given.clear();
  line("{\"e\": \"contents\", \"which\": " + std::to_string(which) + ", \"bytes\": " + std::to_string(total) + "}");
}

void finish() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (s.file == nullptr) return;
  if (s.count == s.to) contents(1);
  line("{\"e\": \"end\", \"n\": " + std::to_string(s.count) + "}");
  std::fclose(s.file);
  s.file = nullptr;
}

// A child that ends with `exit` writes what a buffer held when it was forked once more.
void before_fork() {
  if (std::FILE* file = state().file) std::fflush(file);
}

void in_child() {
  State& s = state();
  s.file = nullptr;  // not closed: the parent writes there
  s.child = !s.folder.empty();
}

// A forked process that calls CUDA or MPI: the streams' threads are the parent's, and CUDA works there as little.
[[noreturn]] void stop_child() {
  const std::string at = std::string(here_file) + ":" + std::to_string(here_line);
  std::ofstream(state().folder + "/forked-" + std::to_string(getpid())) << at;
  std::fprintf(stderr, "%s: a forked process calls CUDA or MPI\n", at.c_str());
  _exit(1);
}

// Before the application's own constructors, which may allocate.
__attribute__((constructor(101))) void begin() {
  const char* folder = std::getenv("DAGC_RECORD_TO");
  if (folder == nullptr) return;
  State& s = state();
  s.folder = folder;
  s.first = pthread_self();
  if (const char* limit = std::getenv("DAGC_RECORD_BYTES")) s.limit = std::strtoull(limit, nullptr, 10);
  s.file = std::fopen((s.folder + "/events-" + std::to_string(getpid()) + ".jsonl").c_str(), "w");
  std::atexit(finish);
  pthread_atfork(before_fork, nullptr, in_child);
  rank(0, 1);
}

}  // namespace

void at(const char* file, int line) {
  here_file = file;
  here_line = line;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out + '"';
}

std::string hex(const void* bytes, std::size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    out += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

Event::Event(const char* kind) : on_(!inside) {
  if (!on_) return;
  inside = true;
  State& s = state();
  if (s.child) stop_child();
  const std::string frames = s.device.frames == nullptr ? "" : s.device.frames();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (s.count == s.from) contents(0);
  if (s.count == s.to) contents(1);
  line_ = "{\"e\": " + quoted(kind) + ", \"n\": " + std::to_string(number_ = s.count++);
  if (here_line != 0) {
    const std::string at = quoted(std::string(here_file) + ":" + std::to_string(here_line));
    line_ += ", \"at\": " + at;
    place_ = at;
  }
  place_ += frames;
  if (!frames.empty()) line_ += ", \"frames\": " + frames;
  if (!pthread_equal(pthread_self(), s.first)) line_ += ", \"thread\": 1";
}

Event::~Event() {
  if (!on_) return;
  inside = false;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  line(line_ + "}");
}

Event& Event::raw(const char* name, const std::string& json) {
  if (on_) line_ += ", " + quoted(name) + ": " + json;
  return *this;
}
Event& Event::add(const char* name, long long value) { return raw(name, std::to_string(value)); }
Event& Event::add(const char* name, const std::string& text) { return raw(name, quoted(text)); }
Event& Event::add(const char* name, const void* address) {
  return raw(name, std::to_string(reinterpret_cast<std::uintptr_t>(address)));
}

Event& Event::result(const void* memory, std::size_t bytes) {
  return bytes <= kInline ? add("result", hex(memory, bytes)) : *this;
}

Event& Event::given(const void* memory, std::size_t bytes) {
  if (!on_) return *this;
  if (bytes <= kInline) return add("data", hex(memory, bytes));
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const bool fits = s.limit == 0 || s.given_bytes + bytes <= s.limit;
  if (number_ >= s.to || s.from < 0 || !fits) return *this;
  const char* const begin = static_cast<const char*>(memory);
  const std::vector<char> data(begin, begin + bytes);
  if (in_rounds(number_)) {
    s.given_bytes += bytes;
    write(data_file(number_), data);
    return *this;
  }
  auto& calls = s.given[place_];
  calls.emplace_back(number_, data);
  if (calls.size() > kBefore) calls.pop_front();
  return *this;
}

bool on_device(const void* memory) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  auto after = s.memory.upper_bound(static_cast<const char*>(memory));
  if (after == s.memory.begin()) return false;
  const auto& [begin, m] = *--after;
  return m.kind == "device" && static_cast<const char*>(memory) < begin + m.bytes;
}

namespace {

void remember(void* memory, std::size_t bytes, const char* kind, const std::string& text, const std::string& of,
              bool fresh) {
  if (inside) return;
  State& s = state();
  Event e("alloc");
  e.add("p", memory).add("bytes", static_cast<long long>(bytes)).add("kind", kind).add("text", text).add("of", of);
  const std::string place = e.place() + ' ' + std::to_string(bytes) + ' ' + kind;
  long long event = e.number();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    std::set<long long>& unused = s.unused[place];
    if (!unused.empty()) event = unused.extract(unused.begin()).value();
    if (memory != nullptr && bytes != 0) s.memory[static_cast<const char*>(memory)] = {bytes, kind, event, place};
  }
  if (fresh && in_rounds(e.number()) && s.device.write != nullptr && memory != nullptr) {
    std::vector<char> left = std::move(s.left[event]);
    s.left.erase(event);
    left.resize(bytes);
    s.device.wait();
    s.device.write(memory, left.data(), bytes);
  }
  e.add("memory", event);
}

}  // namespace

void allocated(void* memory, std::size_t bytes, const char* kind, const std::string& text, bool fresh) {
  remember(memory, bytes, kind, text, "", fresh);
}

void variable(void* memory, std::size_t bytes, const std::string& of, const std::string& text) {
  State& s = state();
  bool known = false;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    known = s.memory.count(static_cast<const char*>(memory)) != 0;
  }
  if (known)
    Event("unsupported").add("call", "cudaMemcpyToSymbol");
  else
    remember(memory, bytes, "symbol", text, of, false);
}

Inside::Inside() : before_(inside) { inside = true; }
Inside::~Inside() { inside = before_; }

void freed(const void* memory) {
  if (inside) return;
  State& s = state();
  Event e("free");
  e.add("p", memory);
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.memory.find(static_cast<const char*>(memory));
  if (found == s.memory.end()) return;
  if (e.number() < s.to && s.device.wait != nullptr) {
    s.device.wait();
    s.left[found->second.event] = copy_of(found->first, found->second);
  }
  s.unused[found->second.place].insert(found->second.event);
  s.memory.erase(found);
}

Watch watch(long long launch) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  Watch out{launch, {}};
  if (!in_rounds(launch)) return out;
  for (const auto& [begin, m] : s.memory)
    if (m.kind != "symbol") out.arrays.push_back({begin, m.bytes, m.event});
  return out;
}

void touched(long long launch, long long memory, const std::string& reads, const std::string& writes, bool exact) {
  line("{\"e\": \"touched\", \"n\": " + std::to_string(launch) + ", \"memory\": " + std::to_string(memory) +
       ", \"reads\": " + reads + ", \"writes\": " + writes + ", \"exact\": " + (exact ? "1" : "0") + "}");
}

void device(Device functions) { state().device = functions; }
const Device& device() { return state().device; }

void rank(int rank, int size) {
  State& s = state();
  s.rank = rank;
  const char* span = std::getenv("DAGC_RECORD_SPAN");
  s.from = s.to = -1;
  for (const char* at = span; at != nullptr && *at != '\0';) {
    long long from = 0, to = 0;
    int of = 0;
    if (std::sscanf(at, "%lld,%lld,%d", &from, &to, &of) == 3 && of == rank) s.from = from, s.to = to;
    at = std::strchr(at, ';');
    if (at != nullptr) ++at;
  }
  line("{\"e\": \"rank\", \"rank\": " + std::to_string(rank) + ", \"size\": " + std::to_string(size) + "}");
}

}  // namespace dagc::record

extern "C" void dagc_record_mark(const char* name) { dagc::record::Event("mark").add("name", std::string(name)); }
extern "C" void dagc_record_at(const char* file, int line) { dagc::record::at(file, line); }
