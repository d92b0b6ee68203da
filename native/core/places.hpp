// Where tasks run and where bytes lie, as small values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

class PageMap;
class PlaceContext;

struct DataPlace {
  // composite: pages lie on the devices of a grid. replicated: what a task reads is on each of its devices.
  enum class Kind : std::uint8_t { affine, host, managed, device, composite, replicated };
  Kind kind = Kind::affine;
  int device = -1;                 // for kinds device and managed (there: preferred device, or -1)
  const PageMap* pages = nullptr;  // kind composite; of the machine, which has equal ones once

  bool operator==(const DataPlace&) const = default;
  static DataPlace host() { return {Kind::host}; }
  static DataPlace on(int device) { return {Kind::device, device}; }
  static DataPlace over(const PageMap* pages) { return {Kind::composite, -1, pages}; }
  // Not of a composite place, whose pages have locations of their own.
  Location location() const;
  // Whether the memory is of devices, one or several.
  bool on_devices() const { return kind == Kind::device || kind == Kind::composite; }
  // Whether bytes lie on a device.
  bool lies_on(int device) const;
  // The device, or the first of several; 0 for memory of no device.
  int home() const;
};

// Whether two contexts, which may be null, are of one driver.
bool same_machine(const std::shared_ptr<PlaceContext>& a, const std::shared_ptr<PlaceContext>& b);

struct ExecPlace {
  // `current` stands for "no place given": the device whose context is current when the task starts.
  enum class Kind : std::uint8_t { current, host, device, context, grid };
  Kind kind = Kind::current;
  int device = -1;
  ContextHandle context = 0;                             // kind context: the backing context
  std::shared_ptr<PlaceContext> owner;                   // keeps it
  unsigned generation = 0;                               // of the owner when the place was made
  std::shared_ptr<const std::vector<ExecPlace>> places;  // kind grid, in C order

  static ExecPlace host() { return {Kind::host}; }
  static ExecPlace on(int device) { return {Kind::device, device}; }
  bool operator==(const ExecPlace& other) const {
    return kind == other.kind && device == other.device && context == other.context &&
           generation == other.generation && same_machine(owner, other.owner) &&
           (places == other.places || (places && other.places && *places == *other.places));
  }
};

std::string to_string(const DataPlace& place);
std::string to_string(const ExecPlace& place);

// The place of a context. The owner is kept alive by the value.
ExecPlace place_on(std::shared_ptr<PlaceContext> owner);

// Throws Error(partition) for a place that was replaced by another split or is about to be,
// Error(wrong_context) for one of another machine. Whole devices and the host always pass.
void require_usable(const ExecPlace& place, const Driver& driver);

// The data place of a place's own memory; of a grid, the one that all its places share. Throws
// Error(value) where they share none: the caller gives one.
DataPlace affine_of(const ExecPlace& place);

}  // namespace stf_places
