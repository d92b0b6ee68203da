// What the C++ exception being handled says, in terms that Cython can read.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "driver/status.hpp"

namespace stf_places {

struct CurrentException {
  enum Source { core, memory, other };
  Source source = other;
  ErrorKind kind = ErrorKind::driver;  // meaningful for `core`, as is `failure`
  std::string text;
  Failure failure;
};

// To be called while an exception is being handled (from the handler of Cython's `except +`).
static inline CurrentException current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return {CurrentException::core, error.kind, error.what(), error.failure};
  } catch (const std::bad_alloc&) {
    return {CurrentException::memory, ErrorKind::out_of_memory, "the process has no memory left", {}};
  } catch (const std::exception& error) {
    return {CurrentException::other, ErrorKind::driver, error.what(), {}};
  } catch (...) {
    return {CurrentException::other, ErrorKind::driver, "unknown C++ exception", {}};
  }
}

}  // namespace stf_places
