#include "contexts.hpp"
#include "cuda_driver.hpp"

namespace stf_places::cuda {

// Says what was asked for and what there was; asked only after a failure.
Status CudaDriver::out_of_memory(Status status, int device, std::size_t nbytes) {
  std::string text = "asked for " + std::to_string(nbytes) + " bytes";
  if (device >= 0) text += " on device " + std::to_string(device);
  std::size_t free = 0, total = 0;
  if (status.is(Code::out_of_memory) && device >= 0 && memory_info(device, &free, &total).ok())
    text += ", where " + std::to_string(free) + " of " + std::to_string(total) + " are free";
  return explained(std::move(status), text, device);
}

Status CudaDriver::allocate_device(int device, std::size_t nbytes, StreamHandle stream, Address* out) {
  CUmemoryPool pool = nullptr;
  if (Status status = devices_.pool(device, &pool); !status) return status;
  CUdeviceptr address = 0;
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.MemAllocFromPoolAsync.name()); !status) return status;
  Status status = on_stream(api_, greens_, handle,
                            [&] { return api_.MemAllocFromPoolAsync(&address, nbytes, pool, handle); });
  if (!status) return out_of_memory(std::move(status), device, nbytes);
  *out = address;
  return {};
}

Status CudaDriver::free_device(int device, Address address, StreamHandle stream) {
  if (Status status = devices_.check(device); !status) return status;
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.MemFreeAsync.name()); !status) return status;
  Status status = on_stream(api_, greens_, handle, [&] { return api_.MemFreeAsync(address, handle); });
  return explained(std::move(status), "freeing memory of device " + std::to_string(device), device);
}

// Blocks that were freed stay in the pool until a blocking call has seen the work before them complete;
// asking the streams whether it is does not do (H200, driver 13.0: trimming gave nothing back of 90 GiB).
// Waiting for a context makes the captures on its streams void, whoever opened them: while there are any,
// only what the pool knows to be unused is given back.
Status CudaDriver::trim_device(int device) {
  if (Status status = devices_.check(device); !status) return status;
  CUmemoryPool pool = devices_.existing_pool(device);
  if (pool == nullptr) return {};
  CUcontext context = nullptr;
  if (Status status = devices_.primary(device, &context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  if (!captures_.any())
    if (Status status = api_.CtxSynchronize(); !status) return status;
  return api_.MemPoolTrimTo(pool, 0);
}

Status CudaDriver::allocate_host(std::size_t nbytes, Address* out) {
  CUcontext context = nullptr;
  if (Status status = devices_.any_context(&context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  void* pointer = nullptr;
  Status status = api_.MemHostAlloc(&pointer, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (!status)
    return explained(std::move(status), "asked for " + std::to_string(nbytes) + " bytes of pinned memory");
  *out = to_handle(pointer);
  return {};
}

Status CudaDriver::free_host(Address address) {
  CUcontext context = nullptr;
  if (Status status = devices_.any_context(&context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  return api_.MemFreeHost(from_handle<void*>(address));
}

Status CudaDriver::allocate_managed(std::size_t nbytes, int device, Address* out) {
  CUcontext context = nullptr;
  if (Status status = devices_.primary(device < 0 ? 0 : device, &context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  CUdeviceptr address = 0;
  if (Status status = api_.MemAllocManaged(&address, nbytes, CU_MEM_ATTACH_GLOBAL); !status)
    return out_of_memory(std::move(status), device, nbytes);
  // Only a preference, and devices without concurrent managed access refuse it: not worth failing for.
  if (device >= 0) api_.MemAdvise(address, nbytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device).ignore();
  *out = address;
  return {};
}

Status CudaDriver::free_managed(Address address) {
  CUcontext context = nullptr;
  if (Status status = devices_.any_context(&context); !status) return status;
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  return api_.MemFree(address);
}

}  // namespace stf_places::cuda
