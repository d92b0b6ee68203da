// What the driver's own calls cost, without any library above it: the lower bounds of a task.
// Compiled by raw_driver.py with the system's compiler. Needs no CUDA headers: the few entry points that it
// takes from libcuda have had these signatures since CUDA 4.
#include <dlfcn.h>

#include <chrono>

namespace {

using Handle = void*;

struct Library {
  int (*init)(unsigned);
  int (*retain)(Handle*, int);
  int (*release)(int);
  int (*push)(Handle);
  int (*pop)(Handle*);
  int (*current)(Handle*);
  int (*create_stream)(Handle*, unsigned);
  int (*destroy_stream)(Handle);
  int (*synchronize_stream)(Handle);
  int (*create_event)(Handle*, unsigned);
  int (*destroy_event)(Handle);
  int (*record)(Handle, Handle);
  int (*wait)(Handle, Handle, unsigned);
};

constexpr unsigned non_blocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned disable_timing = 2;  // CU_EVENT_DISABLE_TIMING
constexpr int missing = -1;

template <class Function>
bool take(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

bool load(Library& cuda) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return library != nullptr && take(library, "cuInit", cuda.init) &&
         take(library, "cuDevicePrimaryCtxRetain", cuda.retain) &&
         take(library, "cuDevicePrimaryCtxRelease_v2", cuda.release) &&
         take(library, "cuCtxPushCurrent_v2", cuda.push) && take(library, "cuCtxPopCurrent_v2", cuda.pop) &&
         take(library, "cuCtxGetCurrent", cuda.current) &&
         take(library, "cuStreamCreate", cuda.create_stream) &&
         take(library, "cuStreamDestroy_v2", cuda.destroy_stream) &&
         take(library, "cuStreamSynchronize", cuda.synchronize_stream) &&
         take(library, "cuEventCreate", cuda.create_event) &&
         take(library, "cuEventDestroy_v2", cuda.destroy_event) &&
         take(library, "cuEventRecord", cuda.record) && take(library, "cuStreamWaitEvent", cuda.wait);
}

// Microseconds a call of `body`, or the first status that is not success in `status`.
template <class Body>
double time_calls(int calls, int& status, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls && status == 0; ++i) status = body();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / calls;
}

int measure_calls(const Library& cuda, int calls, double* us) {
  Handle streams[2] = {};
  Handle event = nullptr;
  int status = cuda.create_stream(&streams[0], non_blocking);
  if (status == 0) status = cuda.create_stream(&streams[1], non_blocking);
  if (status == 0) status = cuda.create_event(&event, disable_timing);
  Handle current = nullptr;
  us[0] = time_calls(calls, status, [&] { return cuda.current(&current); });
  us[1] = time_calls(calls, status, [&] { return cuda.record(event, streams[0]); });
  if (status == 0) status = cuda.synchronize_stream(streams[0]);
  us[2] = time_calls(calls, status, [&] {
    const int recorded = cuda.record(event, streams[0]);
    return recorded != 0 ? recorded : cuda.wait(streams[1], event, 0);
  });
  for (Handle stream : streams) {
    if (stream == nullptr) continue;
    if (status == 0) status = cuda.synchronize_stream(stream);
    cuda.destroy_stream(stream);
  }
  if (event != nullptr) cuda.destroy_event(event);
  return status;
}

}  // namespace

// us[0]: get the current context; us[1]: record an event; us[2]: record it and let another stream wait for
// it. Returns the driver's status, or -1 where libcuda or one of the entry points is missing.
extern "C" int raw_driver_measure(int device, int calls, double* us) {
  Library cuda;
  if (!load(cuda)) return missing;
  Handle context = nullptr;
  int status = cuda.init(0);
  if (status == 0) status = cuda.retain(&context, device);
  if (status != 0) return status;
  status = cuda.push(context);
  if (status == 0) {
    status = measure_calls(cuda, calls, us);
    Handle popped = nullptr;
    cuda.pop(&popped);
  }
  cuda.release(device);
  return status;
}
