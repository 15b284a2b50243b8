// Memory of the arrays of an emitted program: loading from files, poisoning, comparison with the reference.
//
//   dagc::Array<float> x;
//   dagc::Store store("data/rank-0000");
//   store.load(x, "x", "x.npy", {n}, dagc::Place::device, dagc::Role::in);      // checks type and shape
//   store.make(y, "y", {n}, dagc::Place::device, dagc::Role::out);
//   store.reset(0);                                    // carried arrays restored, results and scratch poisoned
//   std::string wrong = store.compare(y, "y", "expected/y.npy", 0, y.size, {1e-5, false});
//   std::vector<std::string> changed = store.changed();    // inputs and constants changed since they were loaded
//   std::vector<std::string> beyond = store.overrun();     // "element 7 of `y`, which has 6": written beyond an array
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dagc/array.hpp"
#include "dagc/check.hpp"
#include "dagc/compare.hpp"
#include "dagc/digest.hpp"
#include "dagc/guard_pages.hpp"
#include "dagc/npy.hpp"
#include "dagc/target.hpp"

namespace dagc {

// Guard bytes after each array, 64 or more, to a multiple of 256: its first poison, with a number of the array in each
// element. Reading them gives NaN, and writing them is detected, even if the value is copied from another array.
inline constexpr std::size_t with_guard(std::size_t bytes) { return (bytes + 64 + 255) / 256 * 256; }
using Guard = std::vector<unsigned char>;

namespace detail {

inline bool same_shape(const std::vector<std::int64_t>& found, const std::vector<std::int64_t>& declared) {
  if (found.size() != declared.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (declared[i] >= 0 && found[i] != declared[i]) return false;
  return true;
}

}  // namespace detail

// Owns the memory of all arrays of one rank. `directory` holds the rank's files.
class Store {
 public:
  Store() = default;
  explicit Store(std::string directory) : directory_(std::move(directory)) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() { release(); }

  void open(std::string directory) { directory_ = std::move(directory); }

  // Whether the host sides of `any` arrays are page-locked. Set before the first array.
  bool page_locked = true;

  // Memory of the caller for the array of this name, before it is loaded or made: of `bytes` bytes, in the array's place,
  // on the host for an `any` array, whose other side is allocated here. It has no guard, and is not freed.
  void give(const std::string& name, void* memory, std::size_t bytes) { given_[name] = {memory, bytes}; }
  std::string path(const std::string& file) const { return directory_ + "/" + file; }

  // Loads a per-rank value.
  template <class T>
  T scalar(const char* file) const {
    return load_scalar<T>(path(file));
  }

  // Loads an array of the set-up. A negative entry of `shape` matches every length.
  template <class T>
  void load(Array<T>& a, const char* name, const char* file, const std::vector<std::int64_t>& shape, Place place,
            Role role) {
    const NpyArray values = load_npy(path(file));
    if (!detail::same_shape(values.shape(), shape))
      fail(exit_bad_input, path(file) + ": " + name + " has shape " + values.header().shape_text() + ", declared as " +
                                detail::shape_text(shape));
    const T* first = values.as<T>();
    a.size = values.elements();
    Entry& e = add(a, name, values.shape(), place, role);
    if (role == Role::inout) e.saved = saved_copy(first, e.bytes);
    write(e, first);
    if (!e.read_only()) return;
    e.reload = [this, file = std::string(file)](Entry& to) { write(to, load_npy(path(file)).as<T>()); };
    e.digest = digest_of(e);
  }

  // Makes an array that the program computes.
  template <class T>
  void make(Array<T>& a, const char* name, const std::vector<std::int64_t>& shape, Place place, Role role) {
    a.size = elements_of(shape, sizeof(T), name);
    poison(add(a, name, shape, place, role));
  }

  // Frees an array that `make` has made.
  template <class T>
  void drop(Array<T>& a) {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.data == a.data; });
    free(*at);
    entries_.erase(at);
    a.data = nullptr;
  }

  // Allocates the side on the device of a two-sided array: constants are there, too.
  template <class T>
  void provide_side(Array<T>& a) {
    Entry& e = *find(a);
    const std::size_t room = with_guard(e.bytes);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, room);
    if (status == cudaErrorMemoryAllocation)
      fail(exit_run_failed, "out of memory: array " + e.name + " takes " + std::to_string(room) + " bytes on the device");
    DAGC_CUDA(status);
    e.place = Place::any;
    e.data = data;
    a.data = static_cast<T*>(data);
    GuardedMemory::get().name(data, e.bytes, e.width, e.name);
    if (e.bytes != 0 && e.role == Role::constant) DAGC_CUDA(cudaMemcpy(data, e.mirror, e.bytes, cudaMemcpyHostToDevice));
    if (e.bytes != 0 && e.role != Role::constant) DAGC_CUDA(cudaMemset(data, e.poison.bytes[poison_], e.bytes));
    write_guard(e);
    DAGC_CUDA(cudaDeviceSynchronize());  // before work of other streams
  }

  // Called if memory does not suffice for an array: frees others and returns true, or returns false.
  std::function<bool()> make_room;

  // Before a run: carried arrays get their first values back; results and scratch are filled with poison 0 or 1.
  void reset(int poison_number = 0) {
    poison_ = poison_number;
    for (Entry& e : entries_) {
      if (e.role == Role::inout) write(e, e.saved.get());
      if (e.poisoned()) poison(e);
    }
    DAGC_CUDA(cudaDeviceSynchronize());
  }

  // Names of the inputs and constants whose bytes changed since they were loaded.
  std::vector<std::string> changed() const {
    std::vector<std::string> out;
    for (const Entry& e : entries_)
      if (e.read_only() && digest_of(e) != e.digest) out.push_back(e.name);
    return out;
  }

  // The first element beyond the end of each array that was written since the last call, on the host target also before its
  // beginning: "element 7 of `y`, which has 6". Waits for the device.
  std::vector<std::string> overrun() {
    std::vector<std::string> out;
    for (Entry& e : entries_) {
      if (e.data == nullptr || !e.guarded()) continue;
      const std::size_t before = GuardedMemory::get().written_before(e.data);
      if (before != 0) out.push_back(e.beyond(-static_cast<std::int64_t>((before + e.width - 1) / e.width)));
      const Guard whole = guard_of(e);
      Guard now(whole.size());
      DAGC_CUDA(cudaMemcpy(now.data(), e.end(), now.size(), cudaMemcpyDefault));
      const auto changed = std::mismatch(now.begin(), now.end(), whole.begin()).first;
      if (changed == now.end()) continue;
      out.push_back(e.beyond(static_cast<std::int64_t>((e.bytes + static_cast<std::size_t>(changed - now.begin())) / e.width)));
      write_guard(e);
    }
    return out;
  }

  // Loads inputs and constants again from their files.
  void reload() {
    for (Entry& e : entries_)
      if (e.read_only()) e.reload(e);
    DAGC_CUDA(cudaDeviceSynchronize());
  }

  // For each array, a digest of all bytes but these. Waits for the device.
  std::vector<std::uint64_t> digests_without(const std::vector<Range>& ranges) const {
    std::vector<std::uint64_t> out;
    for (const Entry& e : entries_) {
      std::vector<std::pair<std::size_t, std::size_t>> holes;
      for (const Range& r : ranges)
        if (r.data == e.data) holes.push_back({r.begin, r.end});
      std::sort(holes.begin(), holes.end());
      holes.push_back({e.bytes, e.bytes});
      std::uint64_t sum = 0;
      std::size_t at = 0;
      for (const auto& [begin, end] : holes) {
        if (begin > at) {
          if (e.data != nullptr) sum += digest(e.data, at, begin, e.on_device());
          if (e.mirror != nullptr) sum += 3 * digest(e.mirror, at, begin, false);
        }
        at = std::max(at, end);
      }
      out.push_back(sum);
    }
    return out;
  }

  const std::string& name(std::size_t array) const { return entries_[array].name; }
  const void* data(std::size_t array) const { return entries_[array].data; }

  // All bytes of an array, by its name. `out` is used again, so that its pages are touched once.
  void contents(const std::string& name, std::vector<char>& out) const {
    const Entry& e = named(name);
    out.resize(e.bytes);
    if (e.bytes) DAGC_CUDA(cudaMemcpy(out.data(), e.data != nullptr ? e.data : e.mirror, e.bytes, cudaMemcpyDefault));
  }

  // Which elements of an array differ between two `contents`, a bit for each.
  std::vector<std::uint64_t> differ(const std::string& name, const std::vector<char>& before, const std::vector<char>& now) const {
    const std::size_t width = named(name).width, step = 64 * width;
    std::vector<std::uint64_t> out((now.size() + step - 1) / step);
    for (std::size_t word = 0; word < out.size(); ++word) {
      const std::size_t begin = word * step, end = std::min(begin + step, now.size());
      if (std::memcmp(&now[begin], &before[begin], end - begin) == 0) continue;
      for (std::size_t at = begin; at < end; at += width)
        if (std::memcmp(&now[at], &before[at], width) != 0) out[word] |= std::uint64_t{1} << ((at - begin) / width);
    }
    return out;
  }

  std::string element(const std::string& name, std::size_t at) const {
    return element_text(static_cast<std::int64_t>(at), named(name).shape);
  }

  // From now on `compare` stores the elements instead of comparing them, or compares with the stored ones.
  enum class Want { file, keep, kept };
  void want(Want want) { want_ = want; }

  // Elements [start, start + count) against a file; "" if they agree, else the difference. An element that was neither
  // written after reset(0) nor after reset(1) is wrong for any tolerance. Results on the device with the digest of results
  // that agreed before are not copied to the host: a search checks many implementations, most with equal results.
  template <class T>
  std::string compare(const Array<T>& a, const char* name, const char* file, std::int64_t start, std::int64_t count,
                      const Tolerance& tolerance) {
    Entry* e = find(a);
    const bool digested = e != nullptr && e->place == Place::device && want_ != Want::keep;
    const std::size_t begin = static_cast<std::size_t>(start) * sizeof(T);
    const std::size_t end = begin + static_cast<std::size_t>(count) * sizeof(T);
    const Agreed now = {file, want_, poison_, digested ? digest(a.data, begin, end, true) : 0};
    const auto known = digested ? agreed_.find(now) : agreed_.end();
    std::vector<std::int64_t>& unwritten = unwritten_[file];
    if (known != agreed_.end()) {
      if (poison_ == 0) unwritten.clear();  // these results had none
      error_ = std::max(error_, known->second);
      if (unwritten.empty()) return "";
    }
    double error = 0;
    const std::string wrong = compare_copy(a, e, name, file, start, count, tolerance, &error);
    if constexpr (std::is_floating_point_v<T>)
      error = std::max(error, double{std::numeric_limits<T>::epsilon()});  // no difference of these types is smaller
    error_ = std::max(error_, error);
    const bool all_written = e != nullptr && (!e->poisoned() || unwritten.empty());
    if (digested && wrong.empty() && all_written && agreed_.size() < most_agreed) agreed_.emplace(now, error);
    return wrong;
  }

  // The largest error of the results that were compared since the last call: max|got - want| / max|want| of an array, at
  // least the precision of its elements.
  double take_error() { return std::exchange(error_, 0.0); }

  void release() {
    for (const Entry& e : entries_) free(e);
    entries_.clear();
  }

 private:
  struct Entry;

  // Results that agreed: of a file, what they were compared with, the poison before the run, their digest.
  using Agreed = std::tuple<std::string, Want, int, std::uint64_t>;
  static constexpr std::size_t most_agreed = 4096;

  template <class T>
  std::string compare_copy(const Array<T>& a, Entry* e, const char* name, const char* file, std::int64_t start,
                           std::int64_t count, const Tolerance& tolerance, double* error) {
    const NpyArray want = load_npy(path(file));
    const bool one = tolerance.of != Of::elements;
    const T* first = one ? nullptr : want.as<T>();
    if (want.elements() != (one ? 1 : count))
      fail(exit_bad_input, path(file) + ": has shape " + want.header().shape_text() + ", expected " +
                                std::to_string(one ? 1 : count) + " elements of " + name);
    std::vector<char> copy(static_cast<std::size_t>(count) * sizeof(T));
    dagc::fetch(a, start, count, copy.data());
    if (want_ == Want::keep) return kept_[file] = std::move(copy), "";
    if (want_ == Want::kept && kept_.at(file) == copy) return "";  // also where both have a NaN
    if (want_ == Want::kept) first = reinterpret_cast<const T*>(kept_.at(file).data());
    const T* got = reinterpret_cast<const T*>(copy.data());
    std::string wrong;
    if (one)
      wrong = number_difference(got, count, first ? of_all(tolerance.of, first, count) : *want.as<double>(), tolerance, error);
    else
      wrong = difference(got, first, count, tolerance, e ? e->shape : std::vector<std::int64_t>{}, start, error);
    if (wrong.empty() && e && e->poisoned()) {
      const std::int64_t at = first_unwritten(*e, unwritten_[file], got, start, count);
      if (at >= 0) wrong = "element " + element_text(start + at, e->shape) + " is never written";
    } else if (!wrong.empty() && e && e->poisoned()) {
      std::int64_t at = 0;
      while (at < count && !holds(got[at], e->poison.bytes[poison_])) ++at;
      if (at < count)
        wrong += "; element " + element_text(start + at, e->shape) + " holds what results are filled with before a run: no op or message of this rank has written it";
    }
    return wrong.empty() ? wrong : std::string(name) + " is wrong: " + wrong;
  }

  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
    void* data;
    void* mirror;
    std::size_t bytes, width;  // of all, of an element
    Place place;
    Role role;
    Poison poison;
    std::size_t number;                         // of all arrays so far
    std::shared_ptr<void> saved = {};           // first values of a carried array
    std::function<void(Entry&)> reload = {};    // of an input or a constant
    std::uint64_t digest = 0;                   // likewise, as it was loaded
    bool given = false;                         // by the caller: its side on the host, if it has two

    bool read_only() const { return role == Role::in || role == Role::constant; }
    bool poisoned() const { return role == Role::out || role == Role::scratch; }
    bool guarded() const { return !given || place == Place::any; }
    char* end() const { return static_cast<char*>(data) + bytes; }
    std::string beyond(std::int64_t element) const {
      return "element " + std::to_string(element) + " of `" + name + "`, which has " + std::to_string(bytes / width);
    }
    bool on_device() const { return place == Place::device || place == Place::any; }
  };

  // The sides of an input: both of them where it is an `any` array that ops may move.
  static std::uint64_t digest_of(const Entry& e) {
    const bool moved = e.place == Place::any && e.role != Role::constant;
    if (moved || e.data == nullptr) return digest(e.mirror, 0, e.bytes, false);
    return digest(e.data, 0, e.bytes, e.on_device());
  }

  // The first element that has this poison now, and had the other one at the last comparison; -1: none. `before`: those
  // that had the other one.
  template <class T>
  std::int64_t first_unwritten(const Entry& e, std::vector<std::int64_t>& before, const T* got, std::int64_t start,
                               std::int64_t count) const {
    std::vector<std::int64_t> left;
    for (std::int64_t i = 0; i < count; ++i)
      if (holds(got[i], e.poison.bytes[poison_])) left.push_back(start + i);
    if (poison_ == 0) {
      before = std::move(left);
      return -1;
    }
    for (std::int64_t i : left)
      if (std::binary_search(before.begin(), before.end(), i)) return i - start;
    return -1;
  }

  void free(const Entry& e) const {
    if (e.mirror && !e.given) page_locked ? static_cast<void>(cudaFreeHost(e.mirror)) : GuardedMemory::get().release(e.mirror);
    if (e.given && e.place != Place::any) return;
    if (e.place == Place::host) GuardedMemory::get().release(e.data);
    if (e.place == Place::pinned) cudaFreeHost(e.data);
    if (e.on_device()) cudaFree(e.data);
  }

  // A copy in page-locked memory, from which a GPU copies several times as fast; where there is none, in other memory.
  static std::shared_ptr<void> saved_copy(const void* from, std::size_t bytes) {
    void* to = nullptr;
    std::shared_ptr<void> out;
    if (bytes != 0 && cudaMallocHost(&to, bytes) == cudaSuccess) {
      out = {to, [](void* p) { cudaFreeHost(p); }};
    } else {
      static_cast<void>(cudaGetLastError());
      out = {std::malloc(bytes + 1), [](void* p) { std::free(p); }};
    }
    if (bytes != 0) std::memcpy(out.get(), from, bytes);
    return out;
  }

  static cudaError_t pageable(std::size_t room, void** memory) {
    *memory = GuardedMemory::get().allocate(room, 256);
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  }

  // Memory for an array, and for its side on the host.
  cudaError_t allocate(Place place, std::size_t room, void** data, void** other) const {
    cudaError_t status = cudaSuccess;
    if (place == Place::host) return pageable(room, data);
    const auto host_side = [&] { return page_locked ? cudaMallocHost(other, room) : pageable(room, other); };
    if (place == Place::two_sided) return host_side();
    status = place == Place::pinned ? cudaMallocHost(data, room) : cudaMalloc(data, room);
    if (status != cudaSuccess || place != Place::any) return status;
    status = host_side();
    if (status != cudaSuccess) cudaFree(*data);
    return status;
  }

  // Takes memory that the caller has given for an array. False: there is none.
  bool take(const char* name, std::size_t bytes, Place place, void** data, void** other) const {
    const auto found = given_.find(name);
    if (found == given_.end()) return false;
    const auto [memory, size] = found->second;
    if (size != bytes)
      fail(exit_run_failed, "array " + std::string(name) + " takes " + std::to_string(bytes) + " bytes, and " +
                                std::to_string(size) + " are given");
    *(place == Place::any || place == Place::two_sided ? other : data) = memory;
    if (place == Place::any) DAGC_CUDA(cudaMalloc(data, with_guard(bytes)));
    return true;
  }

  template <class T>
  Entry& add(Array<T>& a, const char* name, const std::vector<std::int64_t>& shape, Place place, Role role) {
    static_assert(std::is_arithmetic_v<T>, "elements are plain numbers");
    const std::size_t room = with_guard(a.bytes());
    void* data = nullptr;
    void* other = nullptr;
    const bool given = take(name, a.bytes(), place, &data, &other);
    cudaError_t status = given ? cudaSuccess : allocate(place, room, &data, &other);
    if (status == cudaErrorMemoryAllocation && make_room && make_room()) {
      static_cast<void>(cudaGetLastError());
      status = allocate(place, room, &data, &other);
    }
    if (status == cudaErrorMemoryAllocation)
      fail(exit_run_failed, "out of memory: array " + std::string(name) + " takes " + std::to_string(room) + " bytes");
    DAGC_CUDA(status);
    a.data = static_cast<T*>(data);
    a.mirror = static_cast<T*>(other);
    entries_.push_back({name, shape, data, other, a.bytes(), sizeof(T), place, role, poison_of<T>(), added_++});
    if (other) std::memset(other, entries_.back().poison.bytes[0], a.bytes());
    entries_.back().given = given;
    for (const void* memory : {data, other}) GuardedMemory::get().name(memory, a.bytes(), sizeof(T), name);
    if (data != nullptr && entries_.back().guarded()) write_guard(entries_.back());
    return entries_.back();
  }

  template <class T>
  Entry* find(const Array<T>& a) {
    for (Entry& e : entries_)
      if (e.data == a.data && e.mirror == a.mirror) return &e;
    return nullptr;
  }
  const Entry& named(const std::string& name) const {
    return *std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  }

  // `any`: constants are on both sides, other arrays start on the host.
  void write(Entry& e, const void* from) const {
    if (e.bytes == 0) return;
    if (e.mirror != nullptr) std::memcpy(e.mirror, from, e.bytes);
    if (e.data == nullptr) return;
    if (e.place == Place::any && e.role != Role::constant) {
      DAGC_CUDA(cudaMemset(e.data, e.poison.bytes[poison_], e.bytes));
    } else if (e.place == Place::device || e.place == Place::any) {
      DAGC_CUDA(cudaMemcpy(e.data, from, e.bytes, cudaMemcpyHostToDevice));
    } else {
      std::memcpy(e.data, from, e.bytes);
    }
  }

  void poison(Entry& e) const {
    if (e.bytes == 0) return;
    const int byte = e.poison.bytes[poison_];
    if (e.mirror) std::memset(e.mirror, byte, e.bytes);
    if (e.data == nullptr) return;
    if (e.on_device())
      DAGC_CUDA(cudaMemset(e.data, byte, e.bytes));
    else
      std::memset(e.data, byte, e.bytes);
  }

  Guard guard_of(const Entry& e) const {
    Guard out(with_guard(e.bytes) - e.bytes, e.poison.bytes[0]);
    for (std::size_t i = 0; i < out.size(); i += e.width)  // the lowest byte: NaN stays NaN
      out[i] = static_cast<unsigned char>(e.poison.bytes[0] ^ (1 + e.number % 100));
    return out;
  }
  void write_guard(const Entry& e) const {
    const Guard guard = guard_of(e);
    DAGC_CUDA(cudaMemcpy(e.end(), guard.data(), guard.size(), cudaMemcpyDefault));
  }

  std::string directory_;
  int poison_ = 0;
  Want want_ = Want::file;
  std::map<Agreed, double> agreed_;             // and their error
  double error_ = 0;
  std::map<std::string, std::vector<std::int64_t>> unwritten_;  // by file, the elements that held poison 0 when compared
  std::map<std::string, std::vector<char>> kept_;  // results of several runs, by the file of those of one run
  std::map<std::string, std::pair<void*, std::size_t>> given_;
  std::vector<Entry> entries_;
  std::size_t added_ = 0;
};

}  // namespace dagc
