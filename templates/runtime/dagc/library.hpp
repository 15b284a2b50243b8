// Parts of a library that an application links: memory, checks of the application's arrays, handles that remain valid
// to test after their object is destroyed, and the errors of the C interface.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dagc/allocation.hpp"
#include "dagc/array.hpp"
#include "dagc/check.hpp"
#include "dagc/fault.hpp"
#include "dagc/target.hpp"

#ifndef DAGC_LIBRARY
#error "define DAGC_LIBRARY, so that failures are exceptions"
#endif

namespace dagc {

// ---- memory of the library ------------------------------------------------------------------------------------------

// Of the application. `place`: 0 device, 1 page-locked, 2 host. Null functions: the CUDA runtime, and malloc.
struct Allocator {
  void* (*allocate)(void* context, std::size_t bytes, int place) = nullptr;
  void (*release)(void* context, void* memory, std::size_t bytes, int place) = nullptr;
  void* context = nullptr;
};

struct Bytes {
  std::size_t of[3] = {0, 0, 0};  // by place
};

// Arrays that the application does not give: scratch, and staging buffers. Counted before they are allocated.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(const Allocator& allocator) : allocator_(allocator) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    for (const Block& block : blocks_)
      if (block.memory != nullptr) release(block);
  }

  // Whether the host sides of `any` arrays are page-locked. Set before the first array.
  bool page_locked = true;

  template <class T>
  void add(Array<T>& a, const char* name, const std::vector<std::int64_t>& shape, Place place) {
    a.size = elements_of(shape, sizeof(T), name);
    push(a, name, index_of(place));
    if (place != Place::any) return;
    const auto set = [](void* array, void* memory) { static_cast<Array<T>*>(array)->mirror = static_cast<T*>(memory); };
    blocks_.push_back({&a, set, name, rounded(a.bytes()), index_of(page_locked ? Place::pinned : Place::host), nullptr});
  }
  // The device's side of an array that the application has on the host.
  template <class T>
  void add_side(Array<T>& a, const char* name) {
    push(a, name, 0);
  }

  // Both sides are allocated from the start; an empty array has none.
  template <class T>
  void provide_side(Array<T>&) {}

  Bytes bytes() const {
    Bytes out;
    for (const Block& block : blocks_) out.of[block.place] += block.bytes;
    return out;
  }

  // Of the arrays added since the last call.
  void allocate() {
    for (; allocated_ < blocks_.size(); ++allocated_) {
      Block& block = blocks_[allocated_];
      if (block.bytes != 0) take(block);
      block.set(block.array, block.memory);
    }
  }

 private:
  struct Block {
    void* array;
    void (*set)(void* array, void* memory);
    const char* name;
    std::size_t bytes;
    int place;
    void* memory;
  };

  template <class T>
  void push(Array<T>& a, const char* name, int place) {
    const auto set = [](void* array, void* memory) { static_cast<Array<T>*>(array)->data = static_cast<T*>(memory); };
    blocks_.push_back({&a, set, name, rounded(a.bytes()), place, nullptr});
  }

  static int index_of(Place place) { return place == Place::host ? 2 : place == Place::pinned ? 1 : 0; }
  static std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  void take(Block& block) {
    if (allocator_.allocate != nullptr) {
      block.memory = allocator_.allocate(allocator_.context, block.bytes, block.place);
    } else if (block.place == 2) {
      block.memory = std::aligned_alloc(256, block.bytes);
    } else {
      const cudaError_t status =
          block.place == 1 ? cudaMallocHost(&block.memory, block.bytes) : cudaMalloc(&block.memory, block.bytes);
      if (status != cudaErrorMemoryAllocation) DAGC_CUDA(status);
      if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    }
    if (block.memory == nullptr)
      fail(exit_run_failed, std::string("out of memory: ") + block.name + " takes " + std::to_string(block.bytes) + " bytes");
    if (reinterpret_cast<std::uintptr_t>(block.memory) % 64 != 0)
      fail(exit_bad_input, "the allocator returned an address that is not a multiple of 64");
  }

  void release(const Block& block) const {
    if (allocator_.allocate != nullptr) {
      if (allocator_.release != nullptr) allocator_.release(allocator_.context, block.memory, block.bytes, block.place);
    } else if (block.place == 2) {
      std::free(block.memory);
    } else if (block.place == 1) {
      cudaFreeHost(block.memory);
    } else {
      cudaFree(block.memory);
    }
  }

  Allocator allocator_;
  std::vector<Block> blocks_;
  std::size_t allocated_ = 0;
};

// ---- the application's arrays ---------------------------------------------------------------------------------------

// A dimension `*`. A negative size is a mistake.
inline constexpr std::int64_t open_length = std::numeric_limits<std::int64_t>::min();

// Checks the properties that can be determined, and keeps the address ranges to detect arrays that overlap.
class Arguments {
 public:
  // `shape` as declared. `written`: by an op or a message.
  template <class T>
  void bind(Array<T>& a, const char* name, const T* data, std::int64_t size, const std::vector<std::int64_t>& shape,
            Place place, bool written) {
    a.size = wanted(size, shape, sizeof(T), name);
    if (size < 0) refuse(name, "has a negative size: " + std::to_string(size));
    if (size < a.size)
      refuse(name, "has " + std::to_string(size) + " elements, needs " + std::to_string(a.size) +
                       (shape.size() > 1 ? ", " + detail::shape_text(shape) : ""));
    T* const memory = const_cast<T*>(data);  // the program does not write what it declares as constant or input
    (place == Place::any ? a.mirror : a.data) = memory;
    if (a.size == 0) return;
    if (data == nullptr) refuse(name, "is a null pointer");
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0)
      refuse(name, "is not aligned to " + std::to_string(alignof(T)) + " bytes");
    check_place(name, data, a.bytes(), place);
    ranges_.push_back({reinterpret_cast<const char*>(data), reinterpret_cast<const char*>(data) + a.bytes(), name, written});
  }

  // Elements of an array: those of its declared shape, or the given number if the shape is open.
  static std::int64_t wanted(std::int64_t size, const std::vector<std::int64_t>& shape, std::size_t width, const char* name) {
    const bool open = std::find(shape.begin(), shape.end(), open_length) != shape.end();
    return open ? size : elements_of(shape, width, name);
  }

  void check_overlaps() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Bound& a, const Bound& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      for (std::size_t k = i + 1; k < ranges_.size() && ranges_[k].begin < ranges_[i].end; ++k)
        if (ranges_[i].written || ranges_[k].written)
          refuse(ranges_[i].name, std::string("overlaps array `") + ranges_[k].name + "`");
  }

 private:
  struct Bound {
    const char *begin, *end, *name;
    bool written;
  };

  [[noreturn]] static void refuse(const char* name, const std::string& what) {
    fail(exit_bad_input, std::string("array `") + name + "` " + what);
  }

#ifdef __CUDACC__
  static void check_place(const char* name, const void* data, std::size_t bytes, Place place) {
    cudaPointerAttributes at{};
    const cudaError_t status = cudaPointerGetAttributes(&at, data);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      refuse(name, std::string("is at an address that CUDA does not know: ") + cudaGetErrorString(status));
    }
    int device = 0;
    DAGC_CUDA(cudaGetDevice(&device));
    const bool on_device = at.type == cudaMemoryTypeDevice, managed = at.type == cudaMemoryTypeManaged;
    if (place == Place::device && !on_device && !managed) refuse(name, "is in host memory, and must be on the GPU");
    if (place == Place::device && on_device && at.device != device)
      refuse(name, "is on GPU " + std::to_string(at.device) + ", and the current one is " + std::to_string(device));
    if (place != Place::device && on_device) refuse(name, "is on the GPU, and must be in host memory");
    if (place == Place::pinned && at.type == cudaMemoryTypeUnregistered)
      refuse(name, "is not page-locked: allocate it by cudaMallocHost, or register it by cudaHostRegister");
    if (!on_device) return;
    const Allocation whole = allocation_of(data);
    const char* const end = static_cast<const char*>(data) + bytes;
    if (whole.bytes != 0 && end > whole.base + whole.bytes)
      refuse(name, "needs " + std::to_string(bytes) + " bytes, and its allocation ends after " +
                       std::to_string(whole.base + whole.bytes - static_cast<const char*>(data)));
  }
#else
  static void check_place(const char*, const void*, std::size_t, Place) {}  // all memory is the host's
#endif

  std::vector<Bound> ranges_;
};

// `arguments` may be null: then only the size is taken.
template <class T>
void bind(Arguments* arguments, Array<T>& a, const char* name, const T* data, std::int64_t size,
          const std::vector<std::int64_t>& shape, Place place, bool written) {
  if (arguments != nullptr) return arguments->bind(a, name, data, size, shape, place, written);
  a.size = Arguments::wanted(size, shape, sizeof(T), name);
}

// The reason why the arguments of the next call of this thread are null pointers, if the caller detected an error
// itself.
DAGC_PRIVATE inline thread_local std::string refused;

[[noreturn]] inline void refuse_arguments() {
  const std::string why = std::exchange(refused, "");
  fail(exit_bad_input, why.empty() ? "sizes or arrays are a null pointer" : why);
}

// ---- handles --------------------------------------------------------------------------------------------------------

// Instances by number. A number is never used twice, so that a handle that was destroyed is recognised.
template <class Instance>
class Handles {
 public:
  std::uint64_t add(std::unique_ptr<Instance> instance) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t slot = 0;
    while (slot < slots_.size() && slots_[slot].instance) ++slot;
    if (slot > 0xffff) fail(exit_run_failed, "more than 65536 instances");
    if (slot == slots_.size()) slots_.emplace_back();
    slots_[slot].generation = ++generation_;
    slots_[slot].instance = std::move(instance);
    return (generation_ << 16 | slot) ^ own_;
  }
  // Null: there is no such handle, or it was destroyed.
  Instance* find(std::uint64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot* const slot = slot_of(handle);
    return slot != nullptr ? slot->instance.get() : nullptr;
  }
  // An instance during a call. Another thread's call with it fails: both would wait for each other's messages.
  class Use {
   public:
    Use(Handles& of, std::uint64_t handle) : of_(of) {
      const std::lock_guard<std::mutex> lock(of_.mutex_);
      Slot& slot = of_.idle(handle);
      slot.in_use = true;
      number_ = static_cast<std::size_t>(&slot - of_.slots_.data());
      instance_ = slot.instance.get();
    }
    ~Use() {
      const std::lock_guard<std::mutex> lock(of_.mutex_);
      of_.slots_[number_].in_use = false;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Instance& operator*() const { return *instance_; }

   private:
    Handles& of_;
    std::size_t number_ = 0;
    Instance* instance_ = nullptr;
  };
  std::unique_ptr<Instance> take(std::uint64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(idle(handle).instance);
  }

 private:
  struct Slot {
    std::uint64_t generation = 0;
    bool in_use = false;
    std::unique_ptr<Instance> instance;
  };
  Slot& idle(std::uint64_t handle) {
    Slot* const slot = slot_of(handle);
    if (slot == nullptr || !slot->instance)
      fail(exit_bad_input, "this handle names no instance: it was destroyed, never created, or is of another library");
    if (slot->in_use)
      fail(exit_bad_input, "another thread is in a call with this instance: give each thread an instance of its own");
    return *slot;
  }
  Slot* slot_of(std::uint64_t handle) {
    const std::uint64_t key = handle ^ own_;
    const std::size_t slot = key & 0xffff;
    return slot < slots_.size() && slots_[slot].generation == key >> 16 ? &slots_[slot] : nullptr;
  }

  // Differs between the libraries of a process, so that none takes the handle of another: the mixed bits of this address.
  std::uint64_t mixed() const {
    std::uint64_t x = reinterpret_cast<std::uintptr_t>(this);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  const std::uint64_t own_ = mixed();
  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::uint64_t generation_ = 0;
};

// ---- errors of the C interface --------------------------------------------------------------------------------------

// The MPI that the library is linked with, in one line.
inline std::string own_mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string out;
  for (const char* c = text; *c != '\0' && *c != '\r' && *c != '\n'; ++c) {
    const bool blank = *c == ' ' || *c == '\t';
    if (!blank || (!out.empty() && out.back() != ' ')) out += blank ? ' ' : *c;
  }
  return out;
}

inline void require_mpi() {
  if (!mpi_running())
    fail(exit_bad_input, "MPI is not running: call MPI_Init first, and destroy before MPI_Finalize (this library is linked with " +
                             own_mpi() + ")");
}

// Errors without a communicator are returned while this lives. MPI raises them on MPI_COMM_WORLD or, since MPI 4, on
// MPI_COMM_SELF, where they end the process by default.
class ReturnedErrors {
 public:
  ReturnedErrors() {
    for (int k = 0; k < 2; ++k) {
      MPI_Comm_get_errhandler(comms_[k], &before_[k]);
      MPI_Comm_set_errhandler(comms_[k], MPI_ERRORS_RETURN);
    }
  }
  ~ReturnedErrors() {
    for (int k = 0; k < 2; ++k) {
      MPI_Comm_set_errhandler(comms_[k], before_[k]);
      MPI_Errhandler_free(&before_[k]);
    }
  }
  ReturnedErrors(const ReturnedErrors&) = delete;
  ReturnedErrors& operator=(const ReturnedErrors&) = delete;

 private:
  const MPI_Comm comms_[2] = {MPI_COMM_WORLD, MPI_COMM_SELF};
  MPI_Errhandler before_[2];
};

// A communicator that the application gives. An intercommunicator could not be duplicated and then used.
inline void require_mpi(MPI_Comm comm) {
  require_mpi();
  if (comm == MPI_COMM_NULL) fail(exit_bad_input, "the communicator is MPI_COMM_NULL");
  int between = 0;
  bool known = comm != MPI_Comm{};  // 0: an integer that is none, or a null pointer
  if (known) {
    const ReturnedErrors returned;
    known = MPI_Comm_test_inter(comm, &between) == MPI_SUCCESS;
  }
  if (!known) fail(exit_bad_input, "no communicator: give one of MPI, or the integer of MPI_Comm_c2f");
  if (between) fail(exit_bad_input, "the communicator is an intercommunicator: merge it by MPI_Intercomm_merge");
}

// Failures in `work` are errors in the application's arguments.
template <class Work>
void given(Work work) {
  try {
    work();
  } catch (const Failure& failure) {
    throw Failure{exit_bad_input, failure.text};
  }
}

// Of the last call in this thread that failed.
DAGC_PRIVATE inline thread_local std::string last_error;

// Runs `work` and returns its error code: 0, or the code of what failed, with its text in `last_error`.
template <class Work>
int guarded(Work work) {
  try {
    work();
    return exit_good;
  } catch (const Failure& failure) {
    const char* const op = op_under_way.load(std::memory_order_relaxed);
    last_error = op != nullptr ? failure.text + " (in " + op + ")" : failure.text;
    end_op();
    return failure.code;
  } catch (const std::exception& error) {
    last_error = std::string("failed: ") + error.what();
  } catch (...) {
    last_error = "failed: an exception of an unknown type";
  }
  end_op();
  return exit_run_failed;
}

// The GPU that an instance was created for is current while this lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    DAGC_CUDA(cudaGetDevice(&before_));
    if (before_ == device)
      before_ = -1;
    else
      DAGC_CUDA(cudaSetDevice(device));
  }
  ~OnDevice() {
    if (before_ >= 0) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace dagc
