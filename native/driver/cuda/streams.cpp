#include <algorithm>

#include "contexts.hpp"
#include "cuda_driver.hpp"
#include "waits.hpp"

namespace stf_places::cuda {

Status CudaDriver::create_stream(ContextHandle context, int priority, StreamHandle* out) {
  auto own = from_handle<CUcontext>(context);
  GreenContext green;
  const bool is_green = greens_.find(own, &green);
  ContextScope scope(api_, is_green ? green.primary : own);
  if (Status status = scope.status(); !status) return status;
  int least = 0, greatest = 0;
  if (Status status = api_.CtxGetStreamPriorityRange(&least, &greatest); !status) return status;
  CUstream stream = nullptr;
  // Lower numbers are more urgent, so `greatest` is the smaller bound.
  int clamped = std::clamp(priority, std::min(greatest, least), std::max(greatest, least));
  Status status = is_green ? api_.GreenCtxStreamCreate(&stream, green.handle, CU_STREAM_NON_BLOCKING, clamped)
                           : api_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, clamped);
  if (!status) return status;
  *out = to_handle(stream);
  return {};
}

Status CudaDriver::destroy_stream(StreamHandle stream) {
  if (stream == 0)
    return Status(
        Failure{Code::invalid_value, 0, "cuStreamDestroy", "", "the default stream cannot be destroyed"});
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.StreamDestroy.name()); !status) return status;
  return on_stream(api_, greens_, handle, [&] { return api_.StreamDestroy(handle); });
}

Status CudaDriver::query_stream(StreamHandle stream) {
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.StreamQuery.name()); !status) return status;
  return on_stream(api_, greens_, handle, [&] { return api_.StreamQuery(handle); });
}

Status CudaDriver::synchronize_stream(StreamHandle stream, const Interrupt& interrupt) {
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.StreamQuery.name()); !status) return status;
  auto query = [&](CUresult* result) { return api_.StreamQuery.raw(result, handle); };
  return on_stream(api_, greens_, handle,
                   [&] { return wait_until_ready(api_, api_.StreamQuery.name(), query, interrupt); });
}

Status CudaDriver::stream_context(StreamHandle stream, ContextHandle* out) {
  CUcontext context = nullptr;
  if (Status status = api_.StreamGetCtx(from_handle<CUstream>(stream), &context); !status) return status;
  *out = to_handle(context);
  return {};
}

Status CudaDriver::stream_capturing(StreamHandle stream, bool* out) {
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  auto handle = from_handle<CUstream>(stream);
  Status status = on_stream(api_, greens_, handle, [&] { return api_.StreamIsCapturing(handle, &state); });
  if (!status) return status;
  // An invalidated capture still has to be ended, so the stream is not free for ordinary work.
  *out = state != CU_STREAM_CAPTURE_STATUS_NONE;
  return {};
}

Status CudaDriver::query_default_streams(ContextHandle context) {
  ContextScope scope(api_, from_handle<CUcontext>(context));
  if (Status status = scope.status(); !status) return status;
  if (Status status = api_.StreamQuery(CU_STREAM_LEGACY); !status)
    return explained(std::move(status), "the legacy default stream");
  return explained(api_.StreamQuery(CU_STREAM_PER_THREAD), "this thread's default stream");
}

// An event made in a green context would end with it; one of the primary context can be recorded on green
// streams too.
Status CudaDriver::create_event(ContextHandle context, bool timing, EventHandle* out) {
  ContextScope scope(api_, greens_.stand_in(from_handle<CUcontext>(context)));
  if (Status status = scope.status(); !status) return status;
  CUevent event = nullptr;
  if (Status status = api_.EventCreate(&event, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING); !status)
    return status;
  *out = to_handle(event);
  return {};
}

Status CudaDriver::destroy_event(EventHandle event) { return api_.EventDestroy(from_handle<CUevent>(event)); }

Status CudaDriver::record_event(EventHandle event, StreamHandle stream) {
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.EventRecord.name()); !status) return status;
  return on_stream(api_, greens_, handle,
                   [&] { return api_.EventRecord(from_handle<CUevent>(event), handle); });
}

Status CudaDriver::wait_event(StreamHandle stream, EventHandle event) {
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.StreamWaitEvent.name()); !status) return status;
  return on_stream(api_, greens_, handle, [&] {
    return api_.StreamWaitEvent(handle, from_handle<CUevent>(event), CU_EVENT_WAIT_DEFAULT);
  });
}

Status CudaDriver::query_event(EventHandle event) { return api_.EventQuery(from_handle<CUevent>(event)); }

Status CudaDriver::synchronize_event(EventHandle event, const Interrupt& interrupt) {
  auto handle = from_handle<CUevent>(event);
  auto query = [&](CUresult* result) { return api_.EventQuery.raw(result, handle); };
  return wait_until_ready(api_, api_.EventQuery.name(), query, interrupt);
}

Status CudaDriver::elapsed_us(EventHandle from, EventHandle to, double* out) {
  float milliseconds = 0;
  Status status = api_.EventElapsedTime(&milliseconds, from_handle<CUevent>(from), from_handle<CUevent>(to));
  if (!status) return explained(std::move(status), "both events must be timing events that were recorded");
  *out = static_cast<double>(milliseconds) * 1000.0;
  return {};
}

}  // namespace stf_places::cuda
