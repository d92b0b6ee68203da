#include "library.hpp"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "../driver.hpp"

namespace stf_places::cuda {

namespace {

std::atomic<bool> in_child{false};

std::string last_loader_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown loader error";
}

}  // namespace

Status Library::open() {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(Failure{Code::not_supported, 0, "dlopen", "",
                          "no CUDA driver is installed (" + last_loader_error() +
                              "); a simulated machine needs none: STF_PLACES_DRIVER=sim"});
  ask_ = dlsym(handle, "cuGetProcAddress_v2");
  if (ask_ == nullptr)
    return Status(Failure{Code::not_supported, 0, "dlsym", "",
                          "libcuda.so.1 has no cuGetProcAddress_v2, which comes with CUDA 12.0; "
                          "a driver for CUDA 12.4 or newer is needed"});
  return {};
}

Status Library::find(const char* name, int version, void** out) const {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  auto ask = reinterpret_cast<PFN_cuGetProcAddress_v12000>(ask_);
  CUresult result = ask(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  if (result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS && address != nullptr) {
    *out = address;
    return {};
  }
  return Status(Failure{Code::not_supported, 0, name, "",
                        std::string("this driver does not have ") + name + ", which comes with CUDA " +
                            version_text(version) + "; a newer driver brings it"});
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { in_child.store(true); }); });
}

bool forked() noexcept { return in_child.load(std::memory_order_relaxed); }

Status forked_failure(const char* call) {
  return Status(
      Failure{Code::forked, 0, call, "",
              "this process was forked after its parent initialised the CUDA driver, and CUDA does not "
              "survive a fork; start workers with multiprocessing.get_context('spawn')"});
}

}  // namespace stf_places::cuda
