#include <algorithm>
#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "sm_set.hpp"

namespace stf_places::cuda {

namespace {

std::vector<SmResource> sm_sets(int device, const std::vector<CUdevResource>& descriptions) {
  std::vector<SmResource> sets;
  for (const CUdevResource& description : descriptions) sets.push_back(sm_set(device, description));
  return sets;
}

}  // namespace

// Asked of the driver where it says so (from 13.0 on), else what the smallest group comes out as.
Status CudaDriver::divisible_set(int device, const CUdevResource& description, SmResource* out) {
  int present = 0;
  if (Status status = version(&present); !status) return status;
  SmResource found = sm_set(device, description);
  if (present >= 13000) {
    found.min_partition = static_cast<int>(description.sm.minSmPartitionSize);
    found.alignment = static_cast<int>(description.sm.smCoscheduledAlignment);
  }
  if (found.min_partition == 0 || found.alignment == 0) {
    CUdevResource smallest{};
    unsigned groups = 1;
    Status status = api_.DevSmResourceSplitByCount(&smallest, &groups, &description, nullptr, 0, 1);
    if (!status && !status.is(Code::invalid_value)) return status;
    // What cannot be split is its own smallest group.
    bool split = status.ok() && groups > 0 && smallest.sm.smCount > 0;
    int unit = split ? static_cast<int>(smallest.sm.smCount) : found.sm_count;
    found.min_partition = found.alignment = unit;
  }
  *out = std::move(found);
  return {};
}

// Green contexts count as there from 12.5 on, which brings streams that can be made on any thread.
Status CudaDriver::device_sms(int device, SmResource* out) {
  if (Status status = api_.GreenCtxStreamCreate.available(); !status) return status;
  if (Status status = devices_.check(device); !status) return status;
  CUdevResource found{};
  Status status = api_.DeviceGetDevResource(devices_.handle(device), &found, CU_DEV_RESOURCE_TYPE_SM);
  if (!status) return explained(std::move(status), "SMs of device " + std::to_string(device), device);
  return divisible_set(device, found, out);
}

Status CudaDriver::context_sms(ContextHandle context, SmResource* out) {
  if (Status status = api_.GreenCtxStreamCreate.available(); !status) return status;
  int device = -1;
  if (Status status = context_device(context, &device); !status) return status;
  CUdevResource found{};
  if (Status status =
          api_.CtxGetDevResource(from_handle<CUcontext>(context), &found, CU_DEV_RESOURCE_TYPE_SM);
      !status)
    return status;
  return divisible_set(device, found, out);
}

Status CudaDriver::split_sms(const SmResource& whole, int sm_count, int groups, bool fine,
                             std::vector<SmResource>* out, SmResource* left) {
  const char* call = api_.DevSmResourceSplitByCount.name();
  if (whole.opaque == nullptr) return refused(call, "there are no SMs to split");
  if (sm_count < 1 || groups < 0)
    return refused(call, "groups have 1 SM or more, and there are 0 (as many as fit) or more of them: got " +
                             std::to_string(groups) + " of " + std::to_string(sm_count) + " SMs");
  // More than fit are never granted, so an upper bound asks for as many as fit.
  int fit = std::max(1, whole.sm_count / sm_count);
  unsigned granted = static_cast<unsigned>(groups == 0 ? fit : std::min(groups, fit));
  std::vector<CUdevResource> made(granted, CUdevResource{});
  CUdevResource rest{};
  Status status =
      api_.DevSmResourceSplitByCount(made.data(), &granted, &description_of(whole), &rest,
                                     fine ? CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING : 0, sm_count);
  const std::string text =
      "groups of " + std::to_string(sm_count) + " SMs out of " + std::to_string(whole.sm_count);
  if (!status) return explained(std::move(status), text, whole.device);
  if (granted == 0) return refused(call, text + ": none fits");
  made.resize(std::min<std::size_t>(granted, made.size()));
  *out = sm_sets(whole.device, made);
  *left = sm_set(whole.device, rest);
  return {};
}

Status CudaDriver::split_sms_unequally(const SmResource& whole, std::span<const SmGroup> groups,
                                       std::vector<SmResource>* out, SmResource* left) {
  const char* call = api_.DevSmResourceSplit.name();
  if (Status status = api_.DevSmResourceSplit.available(); !status) return status;
  if (whole.opaque == nullptr) return refused(call, "there are no SMs to split");
  if (groups.empty()) return refused(call, "a split has 1 group or more: got none");
  std::string text = "groups of";
  std::vector<CU_DEV_SM_RESOURCE_GROUP_PARAMS> asked(groups.size(), CU_DEV_SM_RESOURCE_GROUP_PARAMS{});
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(groups[i].sm_count);
    if (groups[i].sm_count < 0 || groups[i].coscheduled < 0)
      return refused(call, text + ": counts of SMs are 0 (no wish) or more");
    asked[i].smCount = static_cast<unsigned>(groups[i].sm_count);
    asked[i].coscheduledSmCount = static_cast<unsigned>(groups[i].coscheduled);
  }
  std::vector<CUdevResource> made(groups.size(), CUdevResource{});
  CUdevResource rest{};
  Status status = api_.DevSmResourceSplit(made.data(), static_cast<unsigned>(made.size()),
                                          &description_of(whole), &rest, 0, asked.data());
  if (!status)
    return explained(std::move(status), text + " SMs out of " + std::to_string(whole.sm_count), whole.device);
  *out = sm_sets(whole.device, made);
  *left = sm_set(whole.device, rest);
  return {};
}

}  // namespace stf_places::cuda
