// Arrays of an emitted program: memory, loading from files, poisoning, comparison with the reference.
//
//   dagc::Array<float> x;
//   dagc::Store store("data/rank-0000");
//   store.load(x, "x", "x.npy", {n}, dagc::Place::device, dagc::Role::in);      // checks type and shape
//   store.make(y, "y", {n}, dagc::Place::device, dagc::Role::out);
//   store.reset();                                     // carried arrays restored, results and scratch poisoned
//   std::string wrong = store.compare(y, "y", "expected/y.npy", 0, y.size, 1e-5);
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dagc/check.hpp"
#include "dagc/npy.hpp"
#include "dagc/target.hpp"

namespace dagc {

// `any` arrays have two sides: `data` on the device, `mirror` on the host.
enum class Place { device, pinned, host, any };
enum class Role { constant, in, inout, out, scratch };
enum class Mirror { no, yes };

template <class T>
struct Array {
  T* data = nullptr;      // where the ops use it
  T* mirror = nullptr;    // page-locked copy on the host: messages through the host, and `any` arrays
  std::int64_t size = 0;  // elements

  std::size_t bytes() const { return static_cast<std::size_t>(size) * sizeof(T); }
};

namespace detail {

inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out += (i ? ", " : "") + (shape[i] < 0 ? std::string("*") : std::to_string(shape[i]));
  return out + (shape.size() == 1 ? ",)" : ")");
}

inline bool same_shape(const std::vector<std::int64_t>& found, const std::vector<std::int64_t>& declared) {
  if (found.size() != declared.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (declared[i] >= 0 && found[i] != declared[i]) return false;
  return true;
}

}  // namespace detail

// "" where max|got - want| <= rtol * max|want|, else what is wrong. With rtol 0 they must be equal. NaN is wrong.
template <class T>
std::string difference(const T* got, const T* want, std::int64_t n, double rtol) {
  double scale = 0, worst = 0;
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    double off = std::fabs(g - w);
    if (got[i] == want[i]) off = 0;                                               // also for equal infinities
    else if (std::isnan(g) || std::isnan(w) || off == 0) off = HUGE_VAL;          // 0: integers that round together
    if (std::isfinite(w)) scale = std::fmax(scale, std::fabs(w));
    if (off > worst) worst = off, at = i;
  }
  if (at < 0 || (rtol > 0 && worst <= rtol * scale)) return "";
  char text[200];
  std::snprintf(text, sizeof text, "element %lld is %.9g, expected %.9g; largest difference %.3g, allowed %.3g",
                static_cast<long long>(at), static_cast<double>(got[at]), static_cast<double>(want[at]), worst, rtol * scale);
  return text;
}

// Owns the memory of all arrays of one rank. `directory` holds the rank's files.
class Store {
 public:
  Store() = default;
  explicit Store(std::string directory) : directory_(std::move(directory)) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() { release(); }

  void open(std::string directory) { directory_ = std::move(directory); }
  std::string path(const std::string& file) const { return directory_ + "/" + file; }

  // A per-rank value.
  template <class T>
  T scalar(const char* file) const {
    return load_scalar<T>(path(file));
  }

  // An array that the set-up gave. A negative entry of `shape` matches every length.
  template <class T>
  void load(Array<T>& a, const char* name, const char* file, const std::vector<std::int64_t>& shape, Place place,
            Role role, Mirror mirror = Mirror::no) {
    const NpyArray values = load_npy(path(file));
    if (!detail::same_shape(values.shape(), shape))
      fail(exit_run_failed, path(file) + ": " + name + " has shape " + values.header().shape_text() + ", declared as " +
                                detail::shape_text(shape));
    const T* first = values.as<T>();
    a.size = values.elements();
    Entry& e = add(a, place, role, mirror);
    if (role == Role::inout) e.saved.assign(reinterpret_cast<const char*>(first), reinterpret_cast<const char*>(first) + e.bytes);
    write(e, first);
  }

  // An array that the program computes.
  template <class T>
  void make(Array<T>& a, const char* name, const std::vector<std::int64_t>& shape, Place place, Role role,
            Mirror mirror = Mirror::no) {
    a.size = 1;
    for (std::int64_t d : shape) {
      if (d < 0) fail(exit_run_failed, std::string(name) + ": a dimension is negative: " + std::to_string(d));
      a.size *= d;
    }
    poison(add(a, place, role, mirror));
  }

  // Before a run: what is carried gets its first values back; results and scratch become NaN.
  void reset() {
    for (Entry& e : entries_) {
      if (e.role == Role::inout) write(e, e.saved.data());
      if (e.role == Role::out || e.role == Role::scratch) poison(e);
    }
    DAGC_CUDA(cudaDeviceSynchronize());
  }

  // Elements [start, start + count) against a file; "" where they agree, else what is wrong.
  template <class T>
  std::string compare(const Array<T>& a, const char* name, const char* file, std::int64_t start, std::int64_t count,
                      double rtol) const {
    const NpyArray want = load_npy(path(file));
    const T* first = want.as<T>();
    if (want.elements() != count)
      fail(exit_run_failed, path(file) + ": has shape " + want.header().shape_text() + ", expected " +
                                std::to_string(count) + " elements of " + name);
    std::vector<char> copy(static_cast<std::size_t>(count) * sizeof(T));
    fetch(a, start, count, copy.data());
    const std::string wrong = difference(reinterpret_cast<const T*>(copy.data()), first, count, rtol);
    return wrong.empty() ? wrong : std::string(name) + " is wrong: " + wrong;
  }

  // Copy elements to the host.
  template <class T>
  void fetch(const Array<T>& a, std::int64_t start, std::int64_t count, void* to) const {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (bytes == 0) return;
    const Entry* e = find(a.data);
    if (e && e->place == Place::any)
      std::memcpy(to, a.mirror + start, bytes);
    else if (e && e->place == Place::device)
      DAGC_CUDA(cudaMemcpy(to, a.data + start, bytes, cudaMemcpyDeviceToHost));
    else
      std::memcpy(to, a.data + start, bytes);
  }

  void release() {
    for (Entry& e : entries_) {
      if (e.mirror) cudaFreeHost(e.mirror);
      if (e.place == Place::host) std::free(e.data);
      if (e.place == Place::pinned) cudaFreeHost(e.data);
      if (e.place == Place::device || e.place == Place::any) cudaFree(e.data);
    }
    entries_.clear();
  }

 private:
  struct Entry {
    void* data;
    void* mirror;
    std::size_t bytes;
    Place place;
    Role role;
    std::vector<char> saved;  // first values of an array that is carried
  };

  template <class T>
  Entry& add(Array<T>& a, Place place, Role role, Mirror mirror) {
    static_assert(std::is_arithmetic_v<T>, "elements are plain numbers");
    const std::size_t room = a.bytes() ? a.bytes() : 1;  // empty arrays have an address too
    void* data = nullptr;
    void* other = nullptr;
    if (place == Place::host) {
      data = std::aligned_alloc(64, (room + 63) / 64 * 64);
      if (!data) fail(exit_run_failed, "out of memory: " + std::to_string(room) + " bytes");
    } else if (place == Place::pinned) {
      DAGC_CUDA(cudaMallocHost(&data, room));
    } else {
      DAGC_CUDA(cudaMalloc(&data, room));
    }
    if (place == Place::any || mirror == Mirror::yes) DAGC_CUDA(cudaMallocHost(&other, room));
    a.data = static_cast<T*>(data);
    a.mirror = static_cast<T*>(other);
    entries_.push_back({data, other, a.bytes(), place, role, {}});
    if (other) std::memset(other, 0xff, a.bytes());
    return entries_.back();
  }

  const Entry* find(const void* data) const {
    for (const Entry& e : entries_)
      if (e.data == data) return &e;
    return nullptr;
  }

  // `any`: constants are on both sides, other arrays begin on the host.
  static void write(Entry& e, const void* from) {
    if (e.bytes == 0) return;
    if (e.place == Place::any) std::memcpy(e.mirror, from, e.bytes);
    if (e.place == Place::any && e.role != Role::constant) {
      DAGC_CUDA(cudaMemset(e.data, 0xff, e.bytes));
    } else if (e.place == Place::device || e.place == Place::any) {
      DAGC_CUDA(cudaMemcpy(e.data, from, e.bytes, cudaMemcpyHostToDevice));
    } else {
      std::memcpy(e.data, from, e.bytes);
    }
  }

  // Every byte 0xff: NaN in f32 and f64.
  static void poison(Entry& e) {
    if (e.bytes == 0) return;
    if (e.mirror) std::memset(e.mirror, 0xff, e.bytes);
    if (e.place == Place::device || e.place == Place::any)
      DAGC_CUDA(cudaMemset(e.data, 0xff, e.bytes));
    else
      std::memset(e.data, 0xff, e.bytes);
  }

  std::string directory_;
  std::vector<Entry> entries_;
};

}  // namespace dagc
