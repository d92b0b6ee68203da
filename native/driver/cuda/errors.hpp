// From the driver's numbers to Failures: which Code a CUresult stands for, and what a user can do about it.
#pragma once

#include <cuda.h>

#include <string>

#include "../status.hpp"

namespace stf_places::cuda {

class Api;

// Sticky errors (illegal address, assert, ECC ...) are device_lost: every later call of the process on that
// device fails too.
Code code_of(CUresult result) noexcept;
// Ok for CUDA_SUCCESS. The name is asked of the driver; the detail is the general advice for that code.
Status status_of(const Api& api, CUresult result, const char* call);
// What is wrong before the driver is asked: invalid_value.
Status refused(const char* call, std::string detail);
// The same failure, with what was given put before the general advice, and the device that it concerns.
Status explained(Status status, const std::string& detail, int device = -1);

}  // namespace stf_places::cuda
