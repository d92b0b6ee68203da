// Coherence: which instance holds the value, and the copies and waits that bring it where it is needed.
#pragma once

#include "core/data.hpp"
#include "core/points.hpp"
#include "core/small_vector.hpp"

namespace stf_places {

// Points that one operation has to wait for. Points of the operation's own stream are not kept (stream order
// has them) but noted in `own`.
class WaitList {
 public:
  explicit WaitList(Stream& stream) : stream_(stream) {}
  // Something that stays a holder of the point.
  void hold(const PointRef& point) {
    if (!point) return;
    if (point->stream == &stream_ && !stream_.recording())
      own_ = true;
    else
      points_.push_back(point);
  }
  // Something whose hold this operation replaces.
  void take(PointRef& point) {
    hold(point);
    point.reset();
  }
  // All accesses to memory that is about to be written, or what a read has to wait for.
  void before_write(Instance& instance);
  void before_read(Instance& instance);
  // Puts the waits on the stream. When it throws, or the operation behind it fails, `settle` comes next.
  void enqueue();
  // The host waits instead, so that nobody needs the points that were taken.
  void settle() noexcept;
  bool pending() const { return own_ || !points_.empty(); }

 private:
  Stream& stream_;
  SmallVector<PointRef, 4> points_;
  bool own_ = false;
};

// Keeps an instance's memory from being given up.
class Pin {
 public:
  explicit Pin(Instance& instance) : instance_(&instance) { ++instance_->pins; }
  ~Pin() { --instance_->pins; }
  Pin(const Pin&) = delete;
  void move(Instance& other) {
    --instance_->pins;
    instance_ = &other;
    ++instance_->pins;
  }
  Instance& operator*() const { return *instance_; }
  Instance* operator->() const { return instance_; }

 private:
  Instance* instance_;
};

class Coherence {
 public:
  explicit Coherence(Context& context) : context_(context) {}

  // The instance of a place, made (without memory) if there is none.
  Instance& instance(Data& data, const DataPlace& place);
  // Gives the instance memory and, unless it has it, the value.
  void make_valid(Data& data, Instance& target, Stream& stream);
  // On `task_stream`, or on a stream of the device whose memory it is; `to` then holds the point to wait for.
  void copy(Data& data, Instance& from, Instance& to, Stream& task_stream);
  // The valid instance that is cheapest to read for `place`, or null.
  Instance* best_source(const Data& data, const DataPlace& place) const;
  // Copies the value to memory that belongs to no instance.
  PointRef copy_out(Data& data, Instance& from, void* out, Stream& stream);
  // After a write of `instance`: it alone is valid.
  static void wrote(Data& data, Instance& instance);

 private:
  // One end of a copy.
  struct End {
    const DataPlace& place;
    Address address;
  };

  void allocate_beside(Data& data, Instance& target, Pin& source, Stream& stream);
  Stream& lane(const Instance& from, const Instance& to, Stream& stream) const;
  void settle_host_memory(Instance& from, Instance& to);
  int distance(const DataPlace& from, const DataPlace& to) const;
  bool reach_each_other(const DataPlace& from, const DataPlace& to) const;
  // The device whose stream copies a piece between memory of two devices, -1: none of them reaches both ends.
  static int copying_device(const DataPlace& from, int source, const DataPlace& to, int target);
  Status transfer(const Data& data, const End& from, const End& to, std::size_t nbytes, Stream& stream);
  // The same where an end is a composite place: cut where the device changes at either end, each piece on a
  // stream of its device, one point for all. `to` is null where the memory belongs to no instance.
  PointRef spread(Data& data, Instance& from, Instance* to, const End& target);

  Context& context_;
};

}  // namespace stf_places
