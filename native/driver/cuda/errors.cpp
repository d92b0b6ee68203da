#include "errors.hpp"

#include <utility>

#include "api.hpp"

namespace stf_places::cuda {

Code code_of(CUresult result) noexcept {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_NOT_READY:
      return Code::not_ready;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Code::out_of_memory;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_INVALID_RESOURCE_TYPE:
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
    case CUDA_ERROR_STREAM_DETACHED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:  // of one green context: the device works on
      return Code::invalid_value;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
      return Code::invalid_device;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return Code::not_supported;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return Code::device_lost;
    default:
      return Code::failed;
  }
}

namespace {

const char* advice(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_INVALID_CONTEXT:
      return "no context is current, or it was destroyed";
    case CUDA_ERROR_INVALID_HANDLE:
      return "the stream, event, function or context does not exist (any more)";
    case CUDA_ERROR_NO_DEVICE:
      return "no GPU is visible to this process; check CUDA_VISIBLE_DEVICES";
    case CUDA_ERROR_NOT_INITIALIZED:
      return "the driver is not initialised in this process";
    case CUDA_ERROR_DEINITIALIZED:
      return "the driver is shutting down: release objects before the program ends";
    case CUDA_ERROR_STUB_LIBRARY:
      return "a stub of libcuda was loaded: remove the stubs folder from LD_LIBRARY_PATH";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "libcuda and the kernel module are of different versions";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return "the device is in exclusive use by another process";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "a kernel used an address outside its allocations";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "a kernel used an address that is not aligned for its type";
    case CUDA_ERROR_ASSERT:
      return "an assertion in a kernel failed";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return "a kernel ran longer than this display device allows";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return "too many registers, threads or shared bytes for one block";
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return "the device's memory has an uncorrectable fault";
    case CUDA_ERROR_INVALID_RESOURCE_TYPE:
      return "the driver does not take resources of this type here";
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
      return "the SMs do not suffice or do not go together: all sets of a green context come from one split, "
             "and only what a device or a context has can be split, not a group or what was left";
    case CUDA_ERROR_KEY_ROTATION:
      return "a rotation of the keys of confidential computing failed";
    case CUDA_ERROR_STREAM_DETACHED:
      return "the stream's green context was destroyed before the stream";
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return "the context was destroyed, and its streams with it: keep what made it for as long as work uses "
             "it";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "not permitted while work is captured into a graph: nothing may wait for streams that take "
             "part, or ask how far they are";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return "an earlier call made the capture void, and failed itself; the graph has to be recorded anew";
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
      return "the stream would join two captures at once; each stream takes part in one";
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
      return "a capture is ended on the stream that began it";
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
      return "a stream was drawn into the capture, by waiting for an event recorded on one that takes part, "
             "and its work was not waited for in turn: let one of the capture's own streams wait for it";
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
      return "work that is captured cannot wait for an event recorded outside of the capture";
    case CUDA_ERROR_CAPTURED_EVENT:
      return "the event was last recorded on a stream that takes part in a capture, so there is nothing to "
             "wait for";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "the default stream was used while another stream is captured";
    default:
      return "";
  }
}

void add_sentence(std::string& text, const std::string& sentence) {
  if (sentence.empty()) return;
  if (!text.empty()) text += "; ";
  text += sentence;
}

}  // namespace

Status status_of(const Api& api, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  Failure failure{code_of(result), static_cast<int>(result), call, "", advice(result)};
  const char* name = nullptr;
  CUresult asked = CUDA_ERROR_UNKNOWN;
  if (api.GetErrorName.raw(&asked, result, &name).ok() && asked == CUDA_SUCCESS && name != nullptr)
    failure.name = name;
  else
    failure.name = "CUDA_ERROR_" + std::to_string(static_cast<int>(result));
  if (failure.code == Code::device_lost)
    add_sentence(failure.detail,
                 "the error is sticky: this process can use the device no more, start a new one");
  return Status(std::move(failure));
}

Status refused(const char* call, std::string detail) {
  return Status(Failure{Code::invalid_value, 0, call, "", std::move(detail)});
}

Status explained(Status status, const std::string& detail, int device) {
  if (status.ok()) return status;
  Failure failure = status.failure();
  std::string text = detail;
  add_sentence(text, failure.detail);
  failure.detail = std::move(text);
  if (device >= 0) failure.device = device;
  return Status(std::move(failure));
}

}  // namespace stf_places::cuda
