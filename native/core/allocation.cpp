#include "core/allocation.hpp"

#include <algorithm>
#include <optional>

namespace stf_places {

namespace {

int device_of(Runtime& runtime, const DataPlace& place) {
  return place.device >= 0 ? place.device : runtime.current_device();
}

// Handles 0, 1 and 2 name default streams, which belong to whatever context is current.
bool is_default_stream(StreamHandle stream) { return stream <= 2; }

class StreamScope {
 public:
  StreamScope(Runtime& runtime, const DataPlace& place, StreamHandle stream) {
    if (is_default_stream(stream))
      scope_.emplace(runtime.driver(), runtime.primary(device_of(runtime, place)));
  }

 private:
  std::optional<CurrentContext> scope_;
};

// The contiguous runs of an array, in C order.
class Runs {
 public:
  explicit Runs(const StridedArray& array)
      : array_(array), nbytes_(array.itemsize), outer_(array.shape.size()) {
    while (outer_ > 0 && (array.shape[outer_ - 1] == 1 ||
                          array.strides[outer_ - 1] == static_cast<std::int64_t>(nbytes_))) {
      --outer_;
      nbytes_ *= static_cast<std::size_t>(array.shape[outer_]);
    }
    empty_ = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
    index_.resize(outer_, 0);
  }

  std::size_t nbytes() const { return nbytes_; }

  // Calls visit(address) -> Status for each run until one fails.
  template <class Visit>
  Status each(Visit visit) {
    if (empty_) return {};
    std::int64_t offset = 0;
    do {
      if (Status status = visit(array_.address + static_cast<Address>(offset)); !status) return status;
    } while (advance(&offset));
    return {};
  }

 private:
  bool advance(std::int64_t* offset) {
    for (std::size_t axis = outer_; axis-- > 0;) {
      *offset += array_.strides[axis];
      if (++index_[axis] < array_.shape[axis]) return true;
      *offset -= array_.strides[axis] * array_.shape[axis];
      index_[axis] = 0;
    }
    return false;
  }

  const StridedArray& array_;
  std::size_t nbytes_;
  std::size_t outer_;
  bool empty_ = false;
  std::vector<std::int64_t> index_;
};

// Enqueues with `visit` and waits, also when an enqueue failed: earlier pieces may still be running.
template <class Visit>
void copy_runs(Runtime& runtime, const StridedArray& array, StreamHandle stream, const Interrupt& interrupt,
               Visit visit) {
  Driver& driver = runtime.driver();
  StreamScope scope(runtime, array.place, stream);
  driver.synchronize_stream(stream, interrupt).check();
  Runs runs(array);
  Status enqueued = runs.each([&](Address address) { return visit(driver, address, runs.nbytes()); });
  Status waited = driver.synchronize_stream(stream, {});
  enqueued.check();
  waited.check();
}

}  // namespace

CurrentContext::CurrentContext(Driver& driver, ContextHandle context) : driver_(driver) {
  driver_.current_context(&before_).check();
  if (before_ == context) return;
  driver_.set_current_context(context).check();
  changed_ = true;
}

CurrentContext::~CurrentContext() {
  if (changed_) driver_.set_current_context(before_).ignore();
}

Address allocate_at(Runtime& runtime, const DataPlace& place, std::size_t nbytes, StreamHandle stream) {
  if (place.device >= 0) runtime.check_device(place.device);
  if (nbytes == 0) return 0;
  Driver& driver = runtime.driver();
  Address address = 0;
  switch (place.kind) {
    case DataPlace::Kind::host:
      driver.allocate_host(nbytes, &address).check();
      break;
    case DataPlace::Kind::managed:
      driver.allocate_managed(nbytes, place.device, &address).check();
      break;
    case DataPlace::Kind::device: {
      StreamScope scope(runtime, place, stream);
      driver.allocate_device(place.device, nbytes, stream, &address).check();
      if (stream == 0) {
        if (Status status = driver.synchronize_stream(stream, {}); !status) {
          driver.free_device(place.device, address, stream).ignore();
          status.check();
        }
      }
      break;
    }
    default:
      throw Error(
          ErrorKind::value,
          "affine() has no memory of its own: it stands for the data place of whatever place a task runs "
          "on. Give data_place.device(0) or data_place.host()");
  }
  return address;
}

void free_at(Runtime& runtime, const DataPlace& place, Address address, StreamHandle stream) {
  if (address == 0) return;
  Driver& driver = runtime.driver();
  StreamScope scope(runtime, place, stream);
  if (place.kind == DataPlace::Kind::device) {
    driver.free_device(place.device, address, stream).check();
    return;
  }
  driver.synchronize_stream(stream, {}).check();
  (place.kind == DataPlace::Kind::host ? driver.free_host(address) : driver.free_managed(address)).check();
}

std::string try_free_at(Runtime& runtime, const DataPlace& place, Address address,
                        StreamHandle stream) noexcept {
  try {
    free_at(runtime, place, address, stream);
  } catch (const Error& error) {
    const bool gone = error.kind == ErrorKind::device_lost || error.failure.code == Code::forked;
    if (!gone) return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

void copy_to_host(Runtime& runtime, const StridedArray& from, void* to, StreamHandle stream,
                  const Interrupt& interrupt) {
  auto target = reinterpret_cast<Address>(to);
  copy_runs(runtime, from, stream, interrupt, [&](Driver& driver, Address address, std::size_t nbytes) {
    Status status = driver.copy(target, Location{}, address, from.place.location(), nbytes, stream);
    target += nbytes;
    return status;
  });
}

void copy_from_host(Runtime& runtime, const void* from, const StridedArray& to, StreamHandle stream,
                    const Interrupt& interrupt) {
  auto source = reinterpret_cast<Address>(from);
  copy_runs(runtime, to, stream, interrupt, [&](Driver& driver, Address address, std::size_t nbytes) {
    Status status = driver.copy(address, to.place.location(), source, Location{}, nbytes, stream);
    source += nbytes;
    return status;
  });
}

void synchronize_at(Runtime& runtime, const DataPlace& place, StreamHandle stream,
                    const Interrupt& interrupt) {
  StreamScope scope(runtime, place, stream);
  runtime.driver().synchronize_stream(stream, interrupt).check();
}

void order_streams(Runtime& runtime, const DataPlace& place, StreamHandle earlier, StreamHandle later) {
  if (earlier == later || earlier + later == 1) return;  // 0 and 1 are the same stream
  Driver& driver = runtime.driver();
  CurrentContext scope(driver, runtime.primary(device_of(runtime, place)));
  ContextHandle context = runtime.primary(device_of(runtime, place));
  if (!is_default_stream(earlier)) driver.stream_context(earlier, &context).check();
  EventHandle event = 0;
  driver.create_event(context, false, &event).check();
  Status status = driver.record_event(event, earlier);
  if (status) status = driver.wait_event(later, event);
  driver.destroy_event(event).ignore();
  status.check();
}

}  // namespace stf_places
