#include "status.hpp"

#include <charconv>

namespace stf_places {

std::string hexadecimal(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

ErrorKind kind_of(Code code) noexcept {
  switch (code) {
    case Code::out_of_memory:
      return ErrorKind::out_of_memory;
    case Code::invalid_device:
      return ErrorKind::invalid_device;
    case Code::not_supported:
      return ErrorKind::not_supported;
    case Code::device_lost:
      return ErrorKind::device_lost;
    case Code::conflict:
      return ErrorKind::conflict;
    case Code::interrupted:
      return ErrorKind::interrupted;
    default:
      return ErrorKind::driver;
  }
}

std::string text_of(const Failure& failure) {
  std::string text = failure.call.empty() ? std::string("driver call") : failure.call;
  text += " failed";
  if (!failure.name.empty()) text += ": " + failure.name;
  if (failure.raw != 0) text += " (" + std::to_string(failure.raw) + ")";
  if (!failure.detail.empty()) text += ": " + failure.detail;
  return text;
}

void Status::raise() const { throw Error(kind_of(failure_->code), text_of(*failure_), *failure_); }

}  // namespace stf_places
