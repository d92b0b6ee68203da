#include "core/data.hpp"

namespace stf_places {

void Instance::add_reader(const PointRef& point) {
  for (PointRef& reader : readers) {
    if (reader->stream == point->stream && !point->stream->recording()) {
      reader = point;
      return;
    }
  }
  readers.push_back(point);
}

std::string Data::label() const {
  return options_.name.empty() ? "data #" + std::to_string(number_) : "'" + options_.name + "'";
}

Instance* Data::find(const DataPlace& place) const {
  for (const auto& instance : instances_) {
    if (instance->place == place) return instance.get();
  }
  return nullptr;
}

void Data::require_whole() const {
  if (poisoned_by_.empty()) return;
  throw Error(ErrorKind::poisoned, label() + " has no usable value, because " + poisoned_by_ +
                                       " failed while writing it: overwrite it with write() first");
}

bool Data::has_value() const {
  for (const auto& instance : instances_) {
    if (instance->valid()) return true;
  }
  return false;
}

}  // namespace stf_places
