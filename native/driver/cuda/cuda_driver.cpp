#include "cuda_driver.hpp"

#include <cstdlib>

#include "contexts.hpp"

namespace stf_places {

Status make_cuda_driver(std::shared_ptr<Driver>* out) {
  auto driver = std::make_shared<cuda::CudaDriver>();
  if (Status status = driver->open(); !status) return status;
  *out = std::move(driver);
  return {};
}

namespace cuda {

Status CudaDriver::open() {
  if (Status status = api_.library.open(); !status) return status;
  // Partitions share hardware queues unless there are more of them than the default of 8. The driver reads
  // this once, when it is initialised.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  if (Status status = api_.Init(0); !status) return status;
  watch_forks();
  return devices_.open();
}

Status CudaDriver::version(int* out) { return api_.DriverGetVersion(out); }

Status CudaDriver::device_count(int* out) {
  if (forked()) return forked_failure("cuDeviceGetCount");
  *out = devices_.count();
  return {};
}

Status CudaDriver::device_properties(int device, DeviceProperties* out) {
  return devices_.properties(device, out);
}

Status CudaDriver::memory_info(int device, std::size_t* free, std::size_t* total) {
  CUcontext context = nullptr;
  if (Status status = devices_.primary(device, &context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  return api_.MemGetInfo(free, total);
}

Status CudaDriver::link(int from, int to, Link* out) {
  Link found;
  if (from == -1 || to == -1) {
    int device = from == -1 ? to : from;
    if (device != -1)
      if (Status status = devices_.check(device); !status) return status;
  } else if (Status status = devices_.can_reach(from, to, &found.peer); !status) {
    return status;
  }
  *out = found;
  return {};
}

Status CudaDriver::enable_peer_access(int device, int peer) {
  return devices_.enable_peer_access(device, peer);
}

Status CudaDriver::primary_context(int device, ContextHandle* out) {
  CUcontext context = nullptr;
  if (Status status = devices_.primary(device, &context); !status) return status;
  *out = to_handle(context);
  return {};
}

Status CudaDriver::current_context(ContextHandle* out) {
  CUcontext context = nullptr;
  if (Status status = api_.CtxGetCurrent(&context); !status) return status;
  *out = to_handle(context);
  return {};
}

Status CudaDriver::set_current_context(ContextHandle context) {
  return api_.CtxSetCurrent(from_handle<CUcontext>(context));
}

Status CudaDriver::context_device(ContextHandle context, int* out) {
  auto own = from_handle<CUcontext>(context);
  GreenContext green;
  if (!greens_.find(own, &green)) return devices_.ordinal_of(own, out);
  if (forked()) return forked_failure("cuCtxGetDevice");
  *out = green.device;
  return {};
}

}  // namespace cuda
}  // namespace stf_places
