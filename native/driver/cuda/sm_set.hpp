// What SmResource::opaque is here: a copy of the driver's CUdevResource.
#pragma once

#include <cuda.h>

#include <memory>

#include "../driver.hpp"

namespace stf_places::cuda {

// `set` has SMs.
inline const CUdevResource& description_of(const SmResource& set) {
  return *static_cast<const CUdevResource*>(set.opaque.get());
}

// Without SMs there is no description either: the driver leaves it invalid.
inline SmResource sm_set(int device, const CUdevResource& description) {
  SmResource set;
  set.device = device;
  if (description.type != CU_DEV_RESOURCE_TYPE_SM || description.sm.smCount == 0) return set;
  set.sm_count = static_cast<int>(description.sm.smCount);
  set.opaque = std::make_shared<const CUdevResource>(description);
  return set;
}

}  // namespace stf_places::cuda
