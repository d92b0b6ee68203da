#include "core/data.hpp"

#include <algorithm>

namespace stf_places {

void Instance::add_reader(const PointRef& point) {
  const auto same_stream = [&](const PointRef& reader) { return reader->stream == point->stream; };
  // In a graph no point stands for another; there can be many.
  const auto earlier =
      point->stream->recording() ? readers.end() : std::find_if(readers.begin(), readers.end(), same_stream);
  if (earlier != readers.end())
    *earlier = point;
  else
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

Instance& Data::add_source(const DataPlace& place, Address address) {
  auto instance = std::make_unique<Instance>();
  instance->place = place;
  instance->address = address;
  instance->state = InstanceState::modified;
  instance->is_source = true;
  instances_.push_back(std::move(instance));
  return *instances_.back();
}

bool Data::has_value() const {
  for (const auto& instance : instances_) {
    if (instance->valid()) return true;
  }
  return false;
}

}  // namespace stf_places
