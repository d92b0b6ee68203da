// The texts and codes of the simulated machine's failures.
#pragma once

#include <string>
#include <utility>

#include "../driver.hpp"

namespace stf_places::sim {

constexpr const char* name_of(Code code) {
  switch (code) {
    case Code::not_ready:
      return "not_ready";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::invalid_value:
      return "invalid_value";
    case Code::invalid_device:
      return "invalid_device";
    case Code::not_supported:
      return "not_supported";
    case Code::device_lost:
      return "device_lost";
    case Code::conflict:
      return "conflict";
    case Code::forked:
      return "forked";
    case Code::interrupted:
      return "interrupted";
    case Code::failed:
      return "failed";
  }
  return "failed";
}

inline Failure failure(Code code, const char* call, std::string detail, int device = -1) {
  return Failure{code, 0, call, name_of(code), std::move(detail), device};
}

inline Status fail(Code code, const char* call, std::string detail, int device = -1) {
  return Status(failure(code, call, std::move(detail), device));
}

// The failure of an earlier operation, returned by a later call.
inline Status fail_again(const char* call, Failure earlier) {
  earlier.call = call;
  return Status(std::move(earlier));
}

inline std::string text_of(Location where) {
  switch (where.kind) {
    case Location::Kind::host:
      return "in host memory";
    case Location::Kind::managed:
      return "in managed memory";
    case Location::Kind::device:
      break;
  }
  return "on device " + std::to_string(where.device);
}

}  // namespace stf_places::sim
