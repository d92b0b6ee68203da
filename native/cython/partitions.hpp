// The partitions of a runtime, put so that Cython needs no nested types.
#pragma once

#include <Python.h>

#include "core/partitions.hpp"
#include "core/places.hpp"
#include "core/runtime.hpp"
#include "cython/release_queue.hpp"

namespace stf_places {

// SplitRequest without the optional.
struct Request {
  std::vector<int> counts;
  bool as_many = false;
  bool exact = false;
  bool fine = false;
  int coscheduled = 0;
  bool has_queues = false;
  int concurrency_limit = 0;
  bool balanced = false;
  std::string text;
};
using Plan = SplitPlan;
using Made = Partitions::Made;

inline SplitRequest split_request(const Request& request) {
  SplitRequest result{request.counts,      request.as_many, request.exact, request.fine,
                      request.coscheduled, std::nullopt,    request.text};
  if (request.has_queues) result.queues = WorkQueues{request.concurrency_limit, request.balanced};
  return result;
}

inline const std::shared_ptr<PlaceContext>& context_of(const Partition& partition) {
  return partition.context;
}

// The place of a partition, which is refused once the partition was replaced.
inline ExecPlace place_of(const Partition& partition) {
  ExecPlace place = place_on(partition.context);
  place.generation = partition.generation;
  return place;
}

inline Plan plan_partitions(Runtime& runtime, int device, const Request& request,
                            const std::shared_ptr<Partition>& within, const Interrupt& interrupt) {
  return runtime.partitions().plan(device, split_request(request), within, interrupt);
}
inline Made make_partitions(Runtime& runtime, int device, const Request& request,
                            const std::shared_ptr<Partition>& within, const Interrupt& interrupt) {
  return runtime.partitions().make(device, split_request(request), within, interrupt);
}
inline Made repartition_places(Runtime& runtime, const Partitions::Holders& places, const Request& request,
                               const Interrupt& interrupt) {
  return runtime.partitions().repartition(places, split_request(request), interrupt);
}
// The SMs out of which places were made. It holds none of them, those of a place that is split included.
struct SplitOrigin {
  std::shared_ptr<SmPool> pool;
  std::shared_ptr<const Grouping> split;
  std::weak_ptr<Partition> parent;
};
inline SplitOrigin origin_of(const Made& made) { return {made.pool, made.plan.grouping, made.parent}; }
inline std::shared_ptr<Partition> remainder_of(Runtime& runtime, const SplitOrigin& origin,
                                               const Interrupt& interrupt) {
  return runtime.partitions().remainder(origin.pool, origin.split, origin.parent.lock(), interrupt);
}
inline std::shared_ptr<Partition> rest_of(Runtime& runtime, const Partitions::Holders& places,
                                          const Interrupt& interrupt) {
  return runtime.partitions().rest(places, interrupt);
}

// Takes `argument` in any case: it is released when the context is no longer used, or at once after a
// failure.
inline std::shared_ptr<PlaceContext> adopt_context(Runtime& runtime, ContextHandle context, int device,
                                                   HostFunction release, void* argument) {
  try {
    int found = -1;
    runtime.driver().context_device(context, &found).check();
    if (device >= 0 && found != device) {
      throw Error(ErrorKind::value, "this context belongs to device " + std::to_string(found) +
                                        ": got dev_id=" + std::to_string(device) +
                                        "; leave dev_id out, or give the context's own");
    }
    SmResource sms;  // stays unknown where the driver cannot tell
    runtime.driver().context_sms(context, &sms).ignore();
    sms.device = found;
    return runtime.partitions().adopt(context, sms, release, argument);
  } catch (...) {
    if (release != nullptr) release(argument);
    throw;
  }
}

// Of the place's own context; 0 when it has none or the driver cannot tell.
inline int known_sm_count(const ExecPlace& place) { return place.owner ? place.owner->sm_count() : 0; }

inline int device_sm_count(Runtime& runtime, int device) {
  runtime.check_device(device);
  DeviceProperties properties;
  runtime.driver().device_properties(device, &properties).check();
  return properties.sm_count;
}

// A HostFunction that gives up a Python object, from any thread. Not while the interpreter shuts down.
inline void release_object(void* object) noexcept {
  if (interpreter_is_finalizing()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(object));
  PyGILState_Release(state);
}

}  // namespace stf_places
