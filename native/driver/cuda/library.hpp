// libcuda.so.1, loaded at run time. library.cpp is the only file that calls dlopen.
//
// Nothing is linked: the library is opened by name, and its functions are asked for one by one, by name and
// by the CUDA version whose signature we were compiled for. So one binary runs on every driver since
// CUDA 12.4, and a function that a driver does not have is missed only by the operation that needs it.
#pragma once

#include <string>

#include "../status.hpp"

namespace stf_places::cuda {

class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Opens libcuda. Fails with not_supported where no driver is installed or where it is too old to be asked.
  // The library is never closed: threads of the driver's own live in it.
  Status open();

  // The address of `name` with the signature that it had in CUDA `version` (12050 for 12.5). Fails with
  // not_supported, naming the CUDA version that brings the function.
  Status find(const char* name, int version, void** out) const;

 private:
  void* ask_ = nullptr;  // cuGetProcAddress_v2
};

// To be called once the driver is initialised: children of fork() are recognised from then on.
void watch_forks();
// True in a child forked after `watch_forks`. One relaxed load: asked before every driver call.
bool forked() noexcept;
// The failure that such a child gets from `call`.
Status forked_failure(const char* call);

}  // namespace stf_places::cuda
