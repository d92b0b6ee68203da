#include "core/places.hpp"

#include <algorithm>

#include "core/page_maps.hpp"
#include "core/place_contexts.hpp"

namespace stf_places {

Location DataPlace::location() const {
  switch (kind) {
    case Kind::device:
      return {Location::Kind::device, device};
    case Kind::managed:
      return {Location::Kind::managed, device};
    default:
      return {Location::Kind::host, -1};
  }
}

bool DataPlace::lies_on(int which) const {
  return kind == Kind::composite ? pages->bytes_on(which) != 0 : kind == Kind::device && device == which;
}

int DataPlace::home() const {
  if (kind == Kind::composite) return pages->pieces().front().device;
  return kind == Kind::device ? device : 0;
}

namespace {
std::string describe_pages(const PageMap& pages) {
  std::string devices;
  for (int device : pages.devices()) devices += (devices.empty() ? "" : ", ") + std::to_string(device);
  return "composite place over devices " + devices + " (" + std::to_string(pages.pieces().size()) +
         " pieces)";
}
}  // namespace

std::string to_string(const DataPlace& place) {
  switch (place.kind) {
    case DataPlace::Kind::host:
      return "host()";
    case DataPlace::Kind::managed:
      return "managed()";
    case DataPlace::Kind::device:
      return "device(" + std::to_string(place.device) + ")";
    case DataPlace::Kind::composite:
      return describe_pages(*place.pages);
    case DataPlace::Kind::replicated:
      return "replicated()";
    default:
      return "affine()";
  }
}

namespace {
std::string describe_context(const ExecPlace& place) {
  const int sm_count = place.owner ? place.owner->sm_count() : 0;
  return "place of " + (sm_count > 0 ? std::to_string(sm_count) + " SMs of " : "") + "device " +
         std::to_string(place.device) + ", context " + hexadecimal(place.context);
}
}  // namespace

std::string to_string(const ExecPlace& place) {
  switch (place.kind) {
    case ExecPlace::Kind::host:
      return "host()";
    case ExecPlace::Kind::device:
      return "device(" + std::to_string(place.device) + ")";
    case ExecPlace::Kind::context:
      return describe_context(place);
    case ExecPlace::Kind::grid: {
      const std::size_t count = place.places ? place.places->size() : 0;
      return "grid of " + std::to_string(count) + " places";
    }
    default:
      return "current_device()";
  }
}

bool same_machine(const std::shared_ptr<PlaceContext>& a, const std::shared_ptr<PlaceContext>& b) {
  return a == b || (a && b && &a->driver() == &b->driver());
}

ExecPlace place_on(std::shared_ptr<PlaceContext> owner) {
  ExecPlace place;
  place.kind = ExecPlace::Kind::context;
  place.device = owner->device();
  place.context = owner->handle();
  place.generation = owner->generation();
  place.owner = std::move(owner);
  return place;
}

void require_usable(const ExecPlace& place, const Driver& driver) {
  if (!place.owner) return;
  if (&place.owner->driver() != &driver) {
    throw Error(ErrorKind::wrong_context,
                to_string(place) + " is of machine '" + std::string(place.owner->driver().machine()) +
                    "' and was given to one of machine '" + std::string(driver.machine()) +
                    "', or to the same machine opened anew: use places and contexts of one machine");
  }
  if (place.owner->generation() != place.generation) {
    throw Error(ErrorKind::partition,
                to_string(place) + " was replaced by repartition(): use the places that it returned");
  }
  if (place.owner->retiring()) {
    throw Error(ErrorKind::partition, to_string(place) +
                                          " is being repartitioned by another thread: use the places that "
                                          "repartition() returns");
  }
}

DataPlace affine_of(const ExecPlace& place) {
  if (place.kind == ExecPlace::Kind::host) return DataPlace::host();
  if (place.kind == ExecPlace::Kind::device || place.kind == ExecPlace::Kind::context) {
    return DataPlace::on(place.device);
  }
  if (place.kind == ExecPlace::Kind::grid && place.places && !place.places->empty()) {
    const DataPlace first = affine_of(place.places->front());
    const auto shares_it = [&](const ExecPlace& one) { return affine_of(one) == first; };
    if (std::all_of(place.places->begin(), place.places->end(), shares_it)) return first;
  }
  throw Error(ErrorKind::value,
              to_string(place) +
                  " has no data place that all its places share: give dplace= with the dependency, or call "
                  "set_affine_data_place on the grid");
}

}  // namespace stf_places
