#include "green_contexts.hpp"

#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "sm_set.hpp"

namespace stf_places::cuda {

void GreenContexts::add(CUcontext context, const GreenContext& green) {
  std::scoped_lock lock(mutex_);
  greens_[context] = green;
  size_.store(greens_.size(), std::memory_order_release);
}

bool GreenContexts::find(CUcontext context, GreenContext* out) const {
  if (size_.load(std::memory_order_acquire) == 0) return false;
  std::scoped_lock lock(mutex_);
  auto found = greens_.find(context);
  if (found == greens_.end()) return false;
  *out = found->second;
  return true;
}

bool GreenContexts::take(CUcontext context, GreenContext* out) {
  std::scoped_lock lock(mutex_);
  auto found = greens_.find(context);
  if (found == greens_.end()) return false;
  *out = found->second;
  greens_.erase(found);
  size_.store(greens_.size(), std::memory_order_release);
  return true;
}

CUcontext GreenContexts::stand_in(CUcontext context) const {
  GreenContext green;
  return find(context, &green) ? green.primary : context;
}

namespace {

constexpr const char* create_call = "cuGreenCtxCreate";

// The driver's descriptions of the sets, or why they make no green context of this device.
Status descriptions(int device, std::span<const SmResource> sms, std::vector<CUdevResource>* out) {
  if (sms.empty()) return refused(create_call, "a green context needs at least one set of SMs: got none");
  for (const SmResource& set : sms) {
    if (set.opaque == nullptr) return refused(create_call, "a set without SMs makes no green context");
    if (set.device != device)
      return refused(create_call, "SMs of device " + std::to_string(set.device) +
                                      " make no green context of device " + std::to_string(device));
    out->push_back(description_of(set));
  }
  return {};
}

}  // namespace

Status CudaDriver::work_queues(int device, const WorkQueues& queues, CUdevResource* out) {
  constexpr int since = 13010;
  int present = 0;
  if (Status status = version(&present); !status) return status;
  if (present < since)
    return Status(Failure{Code::not_supported, 0, api_.DeviceGetDevResource.name(), "",
                          "work queues of green contexts come with CUDA " + version_text(since) +
                              "; this driver is for CUDA " + version_text(present),
                          device});
  if (queues.concurrency_limit < 0)
    return refused(create_call,
                   "a concurrency limit is 0 or more: got " + std::to_string(queues.concurrency_limit));
  CUdevResource found{};
  Status status =
      api_.DeviceGetDevResource(devices_.handle(device), &found, CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG);
  if (!status) return explained(std::move(status), "work queues of device " + std::to_string(device), device);
  if (queues.concurrency_limit > 0) found.wqConfig.wqConcurrencyLimit = queues.concurrency_limit;
  found.wqConfig.sharingScope =
      queues.balanced ? CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED : CU_WORKQUEUE_SCOPE_DEVICE_CTX;
  *out = found;
  return {};
}

Status CudaDriver::create_green_context(int device, std::span<const SmResource> sms, const WorkQueues* queues,
                                        ContextHandle* out) {
  if (Status status = api_.GreenCtxStreamCreate.available(); !status) return status;
  if (Status status = devices_.check(device); !status) return status;
  std::vector<CUdevResource> resources;
  if (Status status = descriptions(device, sms, &resources); !status) return status;
  if (queues != nullptr)
    if (Status status = work_queues(device, *queues, &resources.emplace_back()); !status) return status;
  // Retained first: otherwise the green context alone would keep the primary one alive, and end it when it
  // ends.
  GreenContext made{.device = device};
  if (Status status = devices_.primary(device, &made.primary); !status) return status;

  const std::string text =
      "a green context of " + std::to_string(sms.size()) + " sets of SMs on device " + std::to_string(device);
  CUdevResourceDesc description = nullptr;
  Status status =
      api_.DevResourceGenerateDesc(&description, resources.data(), static_cast<unsigned>(resources.size()));
  if (!status) return explained(std::move(status), text, device);
  status =
      api_.GreenCtxCreate(&made.handle, description, devices_.handle(device), CU_GREEN_CTX_DEFAULT_STREAM);
  if (!status) return explained(std::move(status), text, device);
  CUcontext context = nullptr;
  status = api_.CtxFromGreenCtx(&context, made.handle);
  if (!status) {
    api_.GreenCtxDestroy(made.handle).ignore();
    return explained(std::move(status), text, device);
  }
  greens_.add(context, made);
  *out = to_handle(context);
  return {};
}

Status CudaDriver::destroy_green_context(ContextHandle context) {
  if (forked()) return forked_failure(api_.GreenCtxDestroy.name());
  auto own = from_handle<CUcontext>(context);
  GreenContext green;
  // Forgotten first: once it is destroyed, another thread's new one may get the same handle.
  if (!greens_.take(own, &green))
    return Status(Failure{Code::invalid_value, 0, api_.GreenCtxDestroy.name(), "",
                          "the handle is not that of a green context that this driver made and still has"});
  Status status = api_.GreenCtxDestroy(green.handle);
  if (!status) greens_.add(own, green);
  return status;
}

}  // namespace stf_places::cuda
