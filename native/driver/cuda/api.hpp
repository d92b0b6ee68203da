// The driver's entry points that we use: one list of (name, CUDA version whose signature is meant).
//
// Each is a member of Api that is called like a function and answers with a Status:
//
//   Status status = api.StreamQuery(stream);       // cuStreamQuery
//
// The version is the oldest one that does the job, never the newest that cuda.h knows: a newer signature
// would only make the binary refuse older drivers. The address is taken on the first call.
#pragma once

#include <cudaTypedefs.h>

#include <atomic>

#include "errors.hpp"
#include "library.hpp"

// clang-format off
#define STF_CUDA_ENTRY_POINTS(ENTRY)                                                                   \
  /* the driver */                                                                                     \
  ENTRY(Init, 2000) ENTRY(DriverGetVersion, 2020) ENTRY(GetErrorName, 6000)                            \
  /* devices */                                                                                        \
  ENTRY(DeviceGetCount, 2000) ENTRY(DeviceGet, 2000) ENTRY(DeviceGetName, 2000)                        \
  ENTRY(DeviceGetAttribute, 2000) ENTRY(DeviceTotalMem, 3020) ENTRY(DeviceGetUuid, 11040)              \
  ENTRY(DeviceCanAccessPeer, 4000)                                                                     \
  /* contexts */                                                                                       \
  ENTRY(DevicePrimaryCtxRetain, 7000) ENTRY(DevicePrimaryCtxRelease, 11000) ENTRY(CtxGetCurrent, 4000) \
  ENTRY(CtxSetCurrent, 4000) ENTRY(CtxPushCurrent, 4000) ENTRY(CtxPopCurrent, 4000)                    \
  ENTRY(CtxGetDevice, 2000) ENTRY(CtxSynchronize, 2000) ENTRY(CtxGetStreamPriorityRange, 5050) ENTRY(CtxEnablePeerAccess, 4000)    \
  /* SMs */                                                                                            \
  ENTRY(DeviceGetDevResource, 12040) ENTRY(CtxGetDevResource, 12040)                                   \
  ENTRY(DevSmResourceSplitByCount, 12040) ENTRY(DevSmResourceSplit, 13010)                             \
  ENTRY(DevResourceGenerateDesc, 12040) ENTRY(GreenCtxCreate, 12040) ENTRY(GreenCtxDestroy, 12040)     \
  ENTRY(CtxFromGreenCtx, 12040) ENTRY(GreenCtxStreamCreate, 12050)                                     \
  /* streams */                                                                                        \
  ENTRY(StreamCreateWithPriority, 5050) ENTRY(StreamDestroy, 4000) ENTRY(StreamQuery, 2000)            \
  ENTRY(StreamGetCtx, 9020) ENTRY(StreamIsCapturing, 10000) ENTRY(StreamWaitEvent, 3020)               \
  /* events */                                                                                         \
  ENTRY(EventCreate, 2000) ENTRY(EventDestroy, 4000) ENTRY(EventRecord, 2000) ENTRY(EventQuery, 2000)  \
  ENTRY(EventElapsedTime, 2000)                                                                        \
  /* memory */                                                                                         \
  ENTRY(MemGetInfo, 3020) ENTRY(MemPoolCreate, 11020) ENTRY(MemPoolDestroy, 11020)                     \
  ENTRY(MemPoolSetAttribute, 11020) ENTRY(MemPoolSetAccess, 11020) ENTRY(MemPoolTrimTo, 11020)         \
  ENTRY(MemAllocFromPoolAsync, 11020) ENTRY(MemFreeAsync, 11020) ENTRY(MemHostAlloc, 2020)             \
  ENTRY(MemFreeHost, 2000) ENTRY(MemAllocManaged, 6000) ENTRY(MemAdvise, 8000) ENTRY(MemFree, 3020)    \
  /* pages */                                                                                          \
  ENTRY(MemGetAllocationGranularity, 10020) ENTRY(MemAddressReserve, 10020)                            \
  ENTRY(MemAddressFree, 10020) ENTRY(MemCreate, 10020) ENTRY(MemRelease, 10020) ENTRY(MemMap, 10020)   \
  ENTRY(MemUnmap, 10020) ENTRY(MemSetAccess, 10020)                                                    \
  /* copies and fills */                                                                               \
  ENTRY(MemcpyAsync, 4000) ENTRY(MemcpyPeerAsync, 4000) ENTRY(MemsetD8Async, 3020)                     \
  ENTRY(MemsetD16Async, 3020) ENTRY(MemsetD32Async, 3020) ENTRY(MemsetD2D32Async, 3020)                \
  /* work */                                                                                           \
  ENTRY(LaunchHostFunc, 10000) ENTRY(LaunchKernel, 4000)                                               \
  /* graphs; where two signatures differ by the data of edges, calls that fail without are of 12.3 */  \
  ENTRY(StreamBeginCaptureToGraph, 12030) ENTRY(StreamUpdateCaptureDependencies, 11030)                \
  ENTRY(StreamGetCaptureInfo, 12030) ENTRY(StreamEndCapture, 10000)                                    \
  ENTRY(GraphCreate, 10000) ENTRY(GraphDestroy, 10000) ENTRY(GraphAddEmptyNode, 10000)                 \
  ENTRY(GraphGetNodes, 10000) ENTRY(GraphGetEdges, 12030)                                              \
  ENTRY(GraphInstantiateWithFlags, 11040) ENTRY(GraphExecUpdate, 12000) ENTRY(GraphLaunch, 10000)      \
  ENTRY(GraphExecDestroy, 10000)                                                                       \
  /* loops in graphs */                                                                                \
  ENTRY(GraphAddChildGraphNode, 10000) ENTRY(GraphAddKernelNode, 12000) ENTRY(GraphAddNode, 12030)     \
  ENTRY(GraphConditionalHandleCreate, 12030)
// clang-format on

namespace stf_places::cuda {

template <class Function>
class EntryPoint;

template <class... Arguments>
class EntryPoint<CUresult(CUDAAPI*)(Arguments...)> {
 public:
  EntryPoint(const Api& api, const Library& library, const char* name, int version)
      : api_(api), library_(library), name_(name), version_(version) {}

  // A failing result becomes a Failure with the name of this call.
  Status operator()(Arguments... arguments) const {
    CUresult result = CUDA_SUCCESS;
    if (Status status = raw(&result, arguments...); !status) return status;
    return result == CUDA_SUCCESS ? Status() : status_of(api_, result, name_);
  }

  // Fails only when the call could not be made; `result` is the driver's own answer. For polling, where "not
  // ready" is the usual answer and building a Failure for it would be a waste.
  Status raw(CUresult* result, Arguments... arguments) const {
    Function function = nullptr;
    if (Status status = find(&function); !status) return status;
    *result = function(arguments...);
    return {};
  }

  // Whether this driver has the function; if not, fails as a call of it would.
  Status available() const {
    Function function = nullptr;
    return find(&function);
  }

  const char* name() const noexcept { return name_; }

 private:
  using Function = CUresult(CUDAAPI*)(Arguments...);

  Status find(Function* out) const {
    if (forked()) return forked_failure(name_);
    Function function = function_.load(std::memory_order_acquire);
    if (function == nullptr) {
      void* address = nullptr;
      if (Status status = library_.find(name_, version_, &address); !status) return status;
      function = reinterpret_cast<Function>(address);
      function_.store(function, std::memory_order_release);
    }
    *out = function;
    return {};
  }

  const Api& api_;
  const Library& library_;
  const char* name_;
  int version_;
  mutable std::atomic<Function> function_{nullptr};
};

class Api {
 public:
  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  Library library;

// The names are pasted here and nowhere expanded, because cuda.h redefines many of them as macros.
#define STF_CUDA_MEMBER(Name, version) \
  EntryPoint<PFN_cu##Name##_v##version> Name{*this, library, "cu" #Name, version};
  STF_CUDA_ENTRY_POINTS(STF_CUDA_MEMBER)
#undef STF_CUDA_MEMBER
};

}  // namespace stf_places::cuda
