// The green contexts that this driver made: what the seam's handle (a CUcontext) stands for.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace stf_places::cuda {

struct GreenContext {
  CUgreenCtx handle = nullptr;
  CUcontext primary = nullptr;  // of its device
  int device = -1;
};

class GreenContexts {
 public:
  void add(CUcontext context, const GreenContext& green);
  // False when `context` is not one of them.
  bool find(CUcontext context, GreenContext* out) const;
  bool take(CUcontext context, GreenContext* out);

  // The context to make current for `context`: itself, but for a green one its device's primary context. Up
  // to driver 13.0 a green context can be current to one thread only, and the primary one does for all calls
  // that say their stream.
  CUcontext stand_in(CUcontext context) const;

 private:
  std::atomic<std::size_t> size_{0};  // so that programs without green contexts take no lock
  mutable std::mutex mutex_;          // never held during a driver call
  std::unordered_map<CUcontext, GreenContext> greens_;
};

}  // namespace stf_places::cuda
