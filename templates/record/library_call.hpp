// Records a call of a function of cuBLAS as a launch with the name of the function: numbers that the host gives by pointers
// are passed by value, and a result for the host is one in memory of the device, from which a copy brings it. `Library`
// is cuBLAS as the program calls it: on the host target, or on a GPU.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "argument.hpp"
#include "log.hpp"

namespace dagc::record {

// A result that the host gets, and the memory of the device that has it.
struct LibraryResult {
  void* host;
  void* device;
  std::size_t bytes;
};

// Memory for results, which is there before the first call: what a loop allocates in its first round is in no round. Each
// place of a call has its own.
class LibraryResults {
 public:
  void prepare() {
    if (!free_.empty()) return;
    for (const std::size_t bytes : {4, 8, 16})
      for (int i = 0; i < 8; ++i) free_.emplace(bytes, add(bytes));
  }
  void* at(const std::string& site, std::size_t bytes) {
    void*& memory = used_[{site, bytes}];
    if (memory != nullptr) return memory;
    const auto found = free_.find(bytes);
    memory = found == free_.end() ? add(bytes) : found->second;
    if (found != free_.end()) free_.erase(found);
    return memory;
  }

 private:
  static void* add(std::size_t bytes) {
    void* memory = device().allocate(bytes);
    if (memory != nullptr) allocated(memory, bytes, "device", "");
    return memory;
  }

  std::multimap<std::size_t, void*> free_;
  std::map<std::pair<std::string, std::size_t>, void*> used_;
};
inline LibraryResults& library_results() {
  static LibraryResults& all = *new LibraryResults;
  return all;
}
inline void prepare_results() { library_results().prepare(); }

// What the function is called with in place of an argument.
template <class T>
T in_place_of(T value, bool from_host, const std::string& site, std::vector<LibraryResult>& results) {
  if constexpr (std::is_pointer_v<T>)
    if constexpr (!std::is_const_v<std::remove_pointer_t<T>>)
      if (from_host && value != nullptr && !on_device(value)) {
        const std::string key = site + ' ' + std::to_string(results.size());
        constexpr std::size_t bytes = sizeof(std::remove_pointer_t<T>);
        void* const memory = library_results().at(key, bytes);
        if (memory == nullptr) return value;
        results.push_back({value, memory, bytes});
        return static_cast<T>(memory);
      }
  return value;
}

template <class T>
std::string library_argument(T value, bool from_host) {
  if constexpr (std::is_pointer_v<T>)
    if (from_host && value != nullptr && !on_device(value)) {
      const std::string text = argument(*value);
      return text.substr(0, text.size() - 1) + ", \"referred\": 1}";
    }
  return argument(value);
}

// Which parameters are a number or a result, if they are pointers: behind a vector stands its increment, behind a matrix
// its leading dimension.
template <class... Parameters>
constexpr std::array<bool, sizeof...(Parameters)> are_numbers() {
  constexpr bool integers[] = {std::is_integral_v<Parameters>..., false};
  std::array<bool, sizeof...(Parameters)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = !integers[i + 1];
  return out;
}

// `site`: where the call stands.
template <class Library, class Handle, class Status, class... Parameters>
Status library_call(const std::string& name, const std::string& site, Status (*function)(Handle, Parameters...), Handle handle,
                    Parameters... arguments) {
  const auto mode = Library::mode(handle);
  const bool from_host = mode == CUBLAS_POINTER_MODE_HOST;
  constexpr auto numbers = are_numbers<Parameters...>();
  const auto stream = Library::stream(handle);
  std::vector<LibraryResult> results;
  std::size_t at = 0;
  const auto next = [&] { return from_host && numbers[at++]; };
  const std::tuple<Parameters...> given{in_place_of(arguments, next(), site, results)...};
  if (!results.empty()) Library::set_mode(handle, CUBLAS_POINTER_MODE_DEVICE);
  Status status{};
  {
    Event event("launch");
    std::string list;
    at = 0;
    std::apply([&](auto... one) { ((list += (list.empty() ? "" : ", ") + library_argument(one, next())), ...); }, given);
    event.add("kernel", name).raw("grid", "[1, 1, 1]").raw("block", "[1, 1, 1]").add("shared", 0LL);
    event.add("stream", stream).add("calls", "cublas").raw("args", "[" + list + "]");
    Library::watched(event, stream, [&] {
      status = std::apply([&](auto... one) { return function(handle, one...); }, given);
    });
  }
  if (!results.empty()) Library::set_mode(handle, mode);
  for (const LibraryResult& one : results) {
    Event event("copy");
    event.add("to", one.host).add("from", one.device).add("bytes", static_cast<long long>(one.bytes)).add("rows", 1LL);
    event.add("to_pitch", 0LL).add("from_pitch", 0LL).add("stream", stream).add("waits", 1LL);
    device().wait();
    device().read(one.host, one.device, one.bytes);
    event.given(one.host, one.bytes);
  }
  return status;
}

}  // namespace dagc::record
