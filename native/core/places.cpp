#include "core/places.hpp"

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

std::string to_string(const DataPlace& place) {
  switch (place.kind) {
    case DataPlace::Kind::host:
      return "host()";
    case DataPlace::Kind::managed:
      return "managed()";
    case DataPlace::Kind::device:
      return "device(" + std::to_string(place.device) + ")";
    default:
      return "affine()";
  }
}

std::string to_string(const ExecPlace& place) {
  switch (place.kind) {
    case ExecPlace::Kind::host:
      return "host()";
    case ExecPlace::Kind::device:
      return "device(" + std::to_string(place.device) + ")";
    case ExecPlace::Kind::context:
      return "context(" + std::to_string(place.context) + ", device " + std::to_string(place.device) + ")";
    case ExecPlace::Kind::grid: {
      const std::size_t count = place.places ? place.places->size() : 0;
      return "grid of " + std::to_string(count) + " places";
    }
    default:
      return "current_device()";
  }
}

DataPlace affine_of(const ExecPlace& place) {
  if (place.kind == ExecPlace::Kind::host) return DataPlace::host();
  if (place.kind == ExecPlace::Kind::device || place.kind == ExecPlace::Kind::context) {
    return DataPlace::on(place.device);
  }
  if (place.kind == ExecPlace::Kind::grid && place.places && place.places->size() == 1) {
    return affine_of(place.places->front());
  }
  throw Error(ErrorKind::value,
              to_string(place) +
                  " has no data place of its own: give dplace= with the dependency, or call "
                  "set_affine_data_place on the grid");
}

}  // namespace stf_places
