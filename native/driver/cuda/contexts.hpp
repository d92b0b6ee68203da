// Current contexts: made current for a moment, and the same as before afterwards.
#pragma once

#include "api.hpp"
#include "green_contexts.hpp"

namespace stf_places::cuda {

// Makes a context current for the scope's life. Costs one cuCtxGetCurrent when it is current already, which
// is the usual case; otherwise it is pushed and popped, so that the caller's stack of contexts stays as it
// was.
class ContextScope {
 public:
  ContextScope(const Api& api, CUcontext context);
  // Leaves a green context to its stand-in, unless it is current already.
  ContextScope(const Api& api, const GreenContexts& greens, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // Why the context could not be made current. Asked once.
  Status status() { return std::move(status_); }

 private:
  void enter(CUcontext context, const GreenContexts* greens);

  const Api& api_;
  Status status_;
  bool pushed_ = false;
};

// Runs `operation` with the stream's own context current (its stand-in, see GreenContexts). For copies and
// fills: with the context of another device current the driver refuses some of them (seen on 13.0: pageable
// memory to device 1 while device 0 is current, as an invalid value), although the stream says all.
template <class Operation>
Status in_context_of(const Api& api, const GreenContexts& greens, CUstream stream, Operation operation) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return operation();
  CUcontext owner = nullptr;
  if (Status status = api.StreamGetCtx(stream, &owner); !status) return status;
  ContextScope scope(api, greens, owner);
  if (Status status = scope.status(); !status) return status;
  return operation();
}

// Runs `operation` on a stream. Threads without a current context are refused by some calls although the
// stream says all: then, and only then, the operation is tried again with the stream's own context current.
// So the usual case costs nothing.
template <class Operation>
Status on_stream(const Api& api, const GreenContexts& greens, CUstream stream, Operation operation) {
  Status status = operation();
  if (status.ok() || status.failure().raw != CUDA_ERROR_INVALID_CONTEXT || stream == nullptr) return status;
  CUcontext owner = nullptr;
  if (!api.StreamGetCtx(stream, &owner).ok()) return status;
  ContextScope scope(api, greens, owner);
  if (!scope.status().ok()) return status;
  return operation();
}

}  // namespace stf_places::cuda
