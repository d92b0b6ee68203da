#include "core/allocation.hpp"

#include <algorithm>
#include <optional>

#include "core/page_maps.hpp"
#include "core/page_ranges.hpp"

namespace stf_places {

namespace {

int device_of(Runtime& runtime, const DataPlace& place) {
  if (place.pages != nullptr) return place.home();
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

// Calls visit(address, bytes, location) -> Status for each part of a run that lies on one place.
template <class Visit>
Status each_piece(const StridedArray& array, Address address, std::size_t nbytes, Visit visit) {
  if (array.place.pages == nullptr) return visit(address, nbytes, array.place.location());
  return array.place.pages->each(address - array.block, nbytes,
                                 [&](std::size_t offset, std::size_t part, int device) {
                                   return visit(array.block + offset, part, DataPlace::on(device).location());
                                 });
}

// Enqueues with `visit` and waits, also when an enqueue failed: earlier pieces may still be running.
template <class Visit>
void copy_runs(Runtime& runtime, const StridedArray& array, StreamHandle stream, const Interrupt& interrupt,
               Visit visit) {
  Driver& driver = runtime.driver();
  StreamScope scope(runtime, array.place, stream);
  driver.synchronize_stream(stream, interrupt).check();
  Runs runs(array);
  Status enqueued =
      runs.each([&](Address address) { return each_piece(array, address, runs.nbytes(), visit); });
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

namespace {

// What kept ranges and the driver's pool hold of a device is given up for an allocation that fails; one on
// several devices can fail on each of them.
template <class Ask>
void ask_again(Runtime& runtime, bool pages, Ask ask) {
  std::vector<int> freed;
  for (;;) {
    Status status = ask();
    const int device = status.ok() ? -1 : status.failure().device;
    const bool tried = std::find(freed.begin(), freed.end(), device) != freed.end();
    if (!status.is(Code::out_of_memory) || device < 0 || tried) return status.check();
    runtime.reclaim(device);
    const bool released = runtime.page_ranges().release(device) != 0;
    // A pool takes its own free blocks anyway; pages come from what it gives back.
    if (pages)
      runtime.driver().trim_device(device).check();
    else if (!released)
      status.check();
    freed.push_back(device);
  }
}

Address allocate_in_pool(Runtime& runtime, const DataPlace& place, std::size_t nbytes, StreamHandle stream) {
  Driver& driver = runtime.driver();
  StreamScope scope(runtime, place, stream);
  Address address = 0;
  ask_again(runtime, false, [&] { return driver.allocate_device(place.device, nbytes, stream, &address); });
  if (stream != 0) return address;
  if (Status status = driver.synchronize_stream(stream, {}); !status) {
    driver.free_device(place.device, address, stream).ignore();
    status.check();
  }
  return address;
}

}  // namespace

Address allocate_at(Runtime& runtime, const DataPlace& place, std::size_t nbytes, StreamHandle stream) {
  if (place.device >= 0) runtime.check_device(place.device);
  if (nbytes == 0) return 0;
  Driver& driver = runtime.driver();
  Address address = 0;
  switch (place.kind) {
    case DataPlace::Kind::host:
      driver.allocate_host(nbytes, &address).check();
      return address;
    case DataPlace::Kind::managed:
      driver.allocate_managed(nbytes, place.device, &address).check();
      return address;
    case DataPlace::Kind::device:
      return allocate_in_pool(runtime, place, nbytes, stream);
    case DataPlace::Kind::composite:
      ask_again(runtime, true, [&] { return runtime.page_ranges().take(*place.pages, &address); });
      return address;
    default:
      throw Error(ErrorKind::value,
                  to_string(place) +
                      " has no memory of its own: it stands for the data place of whatever place a task runs "
                      "on. Give data_place.device(0) or data_place.host()");
  }
}

namespace {
// Each device of a composite place has a default stream of its own.
void wait_on_all(Runtime& runtime, const PageMap& pages, StreamHandle stream) {
  for (int device : pages.devices()) {
    CurrentContext scope(runtime.driver(), runtime.primary(device));
    runtime.driver().synchronize_stream(stream, {}).check();
  }
}

[[noreturn]] void refuse_block(const DataPlace& place, Address address) {
  const std::string detail =
      "what is given back was allocated with the same size and not given back before: got " +
      hexadecimal(address) + " on a " + to_string(place);
  Failure failure{Code::invalid_value, 0, "deallocate", "", detail};
  throw Error(ErrorKind::driver, text_of(failure), failure);
}
}  // namespace

void free_at(Runtime& runtime, const DataPlace& place, Address address, StreamHandle stream) {
  if (address == 0) return;
  Driver& driver = runtime.driver();
  StreamScope scope(runtime, place, stream);
  if (place.kind == DataPlace::Kind::device) {
    driver.free_device(place.device, address, stream).check();
    return;
  }
  driver.synchronize_stream(stream, {}).check();
  if (place.pages != nullptr) {
    if (is_default_stream(stream)) wait_on_all(runtime, *place.pages, stream);
    if (!runtime.page_ranges().give(*place.pages, address)) refuse_block(place, address);
    return;
  }
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
  copy_runs(runtime, from, stream, interrupt, [&](Address address, std::size_t nbytes, Location at) {
    Status status = runtime.driver().copy(target, Location{}, address, at, nbytes, stream);
    target += nbytes;
    return status;
  });
}

void copy_from_host(Runtime& runtime, const void* from, const StridedArray& to, StreamHandle stream,
                    const Interrupt& interrupt) {
  auto source = reinterpret_cast<Address>(from);
  copy_runs(runtime, to, stream, interrupt, [&](Address address, std::size_t nbytes, Location at) {
    Status status = runtime.driver().copy(address, at, source, Location{}, nbytes, stream);
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
