// The log of a recorded run: one event a line, as JSON, in a file of each process; and the contents of the arrays at two
// events. `dagc/record/log.py` reads it.
//
//   DAGC_RECORD_TO     the directory that logs and contents are written to
//   DAGC_RECORD_SPAN   FROM,TO,RANK: number of the event before which the contents are written the first time, and the
//                      second; repeated for each rank, with `;`
//   DAGC_RECORD_BYTES  the most bytes of contents that a rank writes, at each of the two, and of what its host gives
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dagc::record {

// Where the call stands that is recorded next by this thread; macros set it.
void at(const char* file, int line);

// An event: its number is taken, and contents that are due are written, when it is made, before the call that it
// records; its line is written at its end.
class Event {
 public:
  explicit Event(const char* kind);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Event& add(const char* name, long long value);
  Event& add(const char* name, const std::string& text);
  Event& add(const char* name, const char* text) { return add(name, std::string(text)); }
  Event& add(const char* name, const void* address);
  Event& raw(const char* name, const std::string& json);
  // What the host gives to a call: in the event if it is small, else, within the recorded rounds, in a file of its own.
  Event& given(const void* memory, std::size_t bytes);
  // What the host has after a call, if it is a few values.
  Event& result(const void* memory, std::size_t bytes);
  long long number() const { return number_; }
  const std::string& place() const { return place_; }

 private:
  long long number_ = -1;
  std::string place_;  // in the source, or as return addresses
  std::string line_;
  bool on_;
};

// While it lives, nothing of its thread is recorded: what a library calls and allocates is not the application's.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

std::string quoted(const std::string& text);
std::string hex(const void* bytes, std::size_t count);

// Memory whose contents belong to the recording, from now on, or no longer. Memory that a place allocates again, of the
// same size, after it was freed is the same, an array of all steps: within the recorded rounds it has what it had when it
// was freed, else zeros, as an array has, in place of anything; but not memory of which the application has data
// before (`fresh` false).
void allocated(void* memory, std::size_t bytes, const char* kind, const std::string& text, bool fresh = true);
void freed(const void* memory);
bool on_device(const void* memory);

// A variable of the GPU's memory that is set now, with the type of its elements.
void variable(void* memory, std::size_t bytes, const std::string& of, const std::string& text);

// A launch whose accesses are recorded, if it has arrays: those of the thread between `begin` and `end`.
struct Watch {
  struct Array {
    const void* memory;
    std::size_t bytes;
    long long event;  // which allocated it first
  };
  long long launch;
  std::vector<Array> arrays;

  void begin() const;
  void end() const;
};
Watch watch(long long launch);
// Pieces are begins and ends in bytes.
void touched(long long launch, long long memory, const std::string& reads, const std::string& writes, bool exact);

// How contents are read: waits for the device; copies to the host; copies from it; allocates there; and, of a program that is recorded as it is, the list
// of return addresses in it, and the UUID of the current GPU. The side that records CUDA sets them.
struct Device {
  void (*wait)() = nullptr;
  void (*read)(void* to, const void* from, std::size_t bytes) = nullptr;
  void (*write)(void* to, const void* from, std::size_t bytes) = nullptr;
  void* (*allocate)(std::size_t bytes) = nullptr;
  std::string (*frames)() = nullptr;
  std::string (*gpu)() = nullptr;
};
void device(Device functions);
const Device& device();

void rank(int rank, int size);

}  // namespace dagc::record

extern "C" void dagc_record_mark(const char* name);
extern "C" void dagc_record_at(const char* file, int line);
