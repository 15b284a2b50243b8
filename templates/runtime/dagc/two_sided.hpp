// `any` arrays of ops whose device is chosen when the program runs: which side has the current contents, and copies
// from one side to the other if, and only if, the next reader is there.
//
//   dagc::TwoSided<float, dagc::Store> x_sides{x, store, dagc::Given::on_host, dagc::Ends::on_host};
//   dagc::need_on_device(stream, x_sides, y_sides);   // before a kernel that reads x and y, on its stream
//   dagc::room_on_device(z_sides);                    // before a kernel that writes z
//   dagc::wrote(dagc::Side::device, z_sides);         // after it was issued
//   dagc::early_on_host(wanted, stream, z_sides);     // then, where early transfers are chosen: if an op reads z there
//   dagc::need_on_host(stream, y_sides);              // before a function on the host that runs in the order of the stream
//   dagc::need_on(dagc::gpu(1), stream, x_sides);     // where a rank has several GPUs: as on the device, on the second one
//   dagc::wait_for(stream);                           // and before one that the host calls next, in that order
//   dagc::need_on_host_now(y_sides);                  // before a function that the host calls next, in no stream's order
//
// The storage allocates the side on the device when it is first needed (`provide_side`).
//
// The state is that after all issued work has completed. Ops that use an array, one of which writes it, are ordered by
// the program, with events where they are on different streams. So the source of a copy is complete at its start, and
// its destination is not in use. The program does not order ops that only read: one of them copies, and the others
// wait for the event of that copy. An early copy is issued with the op that writes the array: what is ordered after
// that op, by its stream or by an event recorded later, is ordered after the copy too.
//
// CUDA may read pageable memory when a copy is issued, before earlier work on its stream (such as a function in a
// worker thread that writes the array) has completed. So the host waits for that work first.
#pragma once

#include <cstddef>
#include <vector>

#include "dagc/array.hpp"
#include "dagc/check.hpp"
#include "dagc/target.hpp"

namespace dagc {

enum class Side { host, device };  // the memory of a further GPU of the rank: `gpu(n)`

constexpr Side gpu(int unit) { return static_cast<Side>(1 + unit); }

// The sides that hold an array's contents before a run, and those that must hold them after it. Only a constant is on
// both sides.
enum class Given { nowhere, on_host, on_both };
enum class Ends { anywhere, on_host };

template <class T, class Storage>
class TwoSided {
 public:
  TwoSided(Array<T>& array, Storage& storage, Given given, Ends ends, int gpus = 1)
      : array_(array), storage_(storage), given_(given), ends_(ends), far_(static_cast<std::size_t>(gpus - 1)) {
    begin();
  }
  TwoSided(const TwoSided&) = delete;
  TwoSided& operator=(const TwoSided&) = delete;
  ~TwoSided() {
    for (const Copy& copy : {to_device_, to_host_})
      if (copy.done != nullptr) cudaEventDestroy(copy.done);
    for (const Far& far : far_) {
      if (far.copy.done != nullptr) cudaEventDestroy(far.copy.done);
      cudaFree(far.data);
    }
  }

  // Before a run.
  void begin() {
    host_ = given_ != Given::nowhere;
    device_ = given_ == Given::on_both;
    for (Far& far : far_) far.holds = far.holds && given_ == Given::on_both;  // a constant stays where it was copied
    last_ = Side::host;
    to_device_.under_way = to_host_.under_way = false;
  }

  void room_on_device() {
    if (array_.data == nullptr) storage_.provide_side(array_);
  }

  // Work that is enqueued on the stream after this reads the side on the device.
  void need_on_device(cudaStream_t stream) {
    room_on_device();
    if (device_) return follow(to_device_, stream);
    if (!anywhere()) return;  // nothing was written yet
    copy(array_.data, at(last_), last_ == Side::host ? cudaMemcpyHostToDevice : cudaMemcpyDefault, stream, to_device_);
    device_ = true;
  }

  // The same of any side; the stream is of that GPU.
  void need_on(Side side, cudaStream_t stream) {
    if (side == Side::host) return need_on_host(stream);
    if (side == Side::device) return need_on_device(stream);
    Far& there = far(side);
    room_on(side);
    if (there.holds) return follow(there.copy, stream);
    if (!anywhere()) return;
    copy(there.data, at(last_), last_ == Side::host ? cudaMemcpyHostToDevice : cudaMemcpyDefault, stream, there.copy);
    there.holds = true;
  }
  // Memory of a further GPU, which is the current one.
  void room_on(Side side) {
    Far& there = far(side);
    if (there.data != nullptr && there.bytes >= array_.bytes()) return;
    DAGC_CUDA(cudaFree(there.data));
    there.data = nullptr;
    there.bytes = array_.bytes();
    there.holds = false;
    void* memory = nullptr;
    DAGC_CUDA(cudaMalloc(&memory, there.bytes + sizeof(T)));
    there.data = static_cast<T*>(memory);
  }
  // The array as ops of a side see it.
  T* at(Side side) { return side == Side::host ? array_.mirror : side == Side::device ? array_.data : far(side).data; }

  // Work that is enqueued on the stream after this reads the side on the host.
  void need_on_host(cudaStream_t stream) {
    if (host_) return follow(to_host_, stream);
    if (!anywhere()) return;
    copy(array_.mirror, at(last_), cudaMemcpyDeviceToHost, stream, to_host_);
    host_ = true;
  }

  // Where all that has written the array is complete: the side on the host may be read at once.
  void need_on_host_now() {
    if (host_ && to_host_.under_way) DAGC_CUDA(cudaEventSynchronize(to_host_.done));
    to_host_.under_way = false;
    if (host_ || !anywhere()) return;
    if (array_.size != 0) DAGC_CUDA(cudaMemcpy(array_.mirror, at(last_), array_.bytes(), cudaMemcpyDeviceToHost));
    host_ = true;
  }

  // The op that was issued last writes this side, so the other one is no longer valid.
  void wrote(Side side) {
    host_ = side == Side::host;
    device_ = side == Side::device;
    for (std::size_t i = 0; i < far_.size(); ++i) far_[i].holds = side == gpu(static_cast<int>(i) + 1);
    for (Far& far : far_) far.copy.under_way = false;
    last_ = side;
    to_device_.under_way = to_host_.under_way = false;
  }

  // After a run, when all is complete.
  void end() {
    if (ends_ == Ends::on_host) need_on_host_now();
    begin();
  }

  bool on(Side side) const { return side == Side::host ? host_ : side == Side::device ? device_ : far_[index(side)].holds; }

 private:
  // The last copy to one side.
  struct Copy {
    bool under_way = false;  // maybe: what uses that side on another stream waits for it
    cudaEvent_t done = nullptr;
    cudaStream_t stream = nullptr;
  };
  struct Far {  // the side on a further GPU
    T* data = nullptr;
    std::size_t bytes = 0;
    bool holds = false;
    Copy copy;
  };

  static std::size_t index(Side side) { return static_cast<std::size_t>(side) - 2; }
  Far& far(Side side) { return far_[index(side)]; }
  // Whether some side has the contents: the one that was written last, or where a run begins.
  bool anywhere() const { return on(last_); }

  void copy(T* to, const T* from, cudaMemcpyKind kind, cudaStream_t stream, Copy& copy) const {
    if (!storage_.page_locked && kind == cudaMemcpyHostToDevice) DAGC_CUDA(cudaStreamSynchronize(stream));
    if (array_.size != 0) DAGC_CUDA(cudaMemcpyAsync(to, from, array_.bytes(), kind, stream));
    if (copy.done == nullptr) DAGC_CUDA(cudaEventCreateWithFlags(&copy.done, cudaEventDisableTiming));
    DAGC_CUDA(cudaEventRecord(copy.done, stream));
    copy.stream = stream;
    copy.under_way = true;
  }
  static void follow(const Copy& copy, cudaStream_t stream) {
    if (copy.under_way && stream != copy.stream) DAGC_CUDA(cudaStreamWaitEvent(stream, copy.done, 0));
  }

  Array<T>& array_;
  Storage& storage_;
  Given given_;
  Ends ends_;
  bool host_ = false, device_ = false;  // which sides have the current contents
  Copy to_device_, to_host_;
  std::vector<Far> far_;
  Side last_ = Side::host;
};

template <class... Arrays>
void need_on(Side side, cudaStream_t stream, Arrays&... arrays) {
  (arrays.need_on(side, stream), ...);
}

template <class... Arrays>
void room_on(Side side, Arrays&... arrays) {
  (arrays.room_on(side), ...);
}

template <class... Arrays>
void need_on_device(cudaStream_t stream, Arrays&... arrays) {
  (arrays.need_on_device(stream), ...);
}

template <class... Arrays>
void room_on_device(Arrays&... arrays) {
  (arrays.room_on_device(), ...);
}

template <class... Arrays>
void need_on_host(cudaStream_t stream, Arrays&... arrays) {
  (arrays.need_on_host(stream), ...);
}

// After an op on the stream that wrote the arrays on one side: copies them to the other one, if they are wanted there.
template <class... Arrays>
void early_on_device(bool wanted, cudaStream_t stream, Arrays&... arrays) {
  if (wanted) need_on_device(stream, arrays...);
}

template <class... Arrays>
void early_on_host(bool wanted, cudaStream_t stream, Arrays&... arrays) {
  if (wanted) need_on_host(stream, arrays...);
}

// Before a function that the host calls next, in the place of work on the stream.
inline void wait_for(cudaStream_t stream) { DAGC_CUDA(cudaStreamSynchronize(stream)); }

template <class... Arrays>
void need_on_host_now(Arrays&... arrays) {
  (arrays.need_on_host_now(), ...);
}

template <class... Arrays>
void wrote(Side side, Arrays&... arrays) {
  (arrays.wrote(side), ...);
}

}  // namespace dagc
