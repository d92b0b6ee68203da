// The driver's own calls for the graph of programs.py: one capture held open, dependencies set by hand, then
// instantiate and launch. Compiled by raw_driver.py with the system's compiler. Needs no CUDA headers: each
// entry point is asked for by the version whose signature stands here.
#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using Handle = void*;
using Clock = std::chrono::steady_clock;

struct Library {
  int (*create_graph)(Handle*, unsigned);
  int (*destroy_graph)(Handle);
  int (*begin)(Handle, Handle, const Handle*, const void*, std::size_t, int);
  int (*update)(Handle, Handle*, std::size_t, unsigned);
  int (*info)(Handle, int*, std::uint64_t*, Handle*, const Handle**, const void**, std::size_t*);
  int (*end)(Handle, Handle*);
  int (*instantiate)(Handle*, Handle, unsigned long long);
  int (*launch_graph)(Handle, Handle);
  int (*destroy_exec)(Handle);
  int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                void**);
  int (*query)(Handle);
  int (*create_event)(Handle*, unsigned);
  int (*destroy_event)(Handle);
  int (*record)(Handle, Handle);
  int (*wait)(Handle, Handle, unsigned);
};

constexpr int lanes = 8;
constexpr int arrays = 2 * lanes;
constexpr unsigned threads = 64;
constexpr unsigned disable_timing = 2;           // CU_EVENT_DISABLE_TIMING
constexpr int relaxed = 2;                       // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr unsigned set = 1;                      // CU_STREAM_SET_CAPTURE_DEPENDENCIES
constexpr unsigned long long node_priority = 8;  // CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, as ours
constexpr int not_ready = 600;                   // CUDA_ERROR_NOT_READY
constexpr int missing = -1;

using Find = int (*)(const char*, void**, int, std::uint64_t, int*);

template <class Function>
bool take(Find find, const char* name, int version, Function& out) {
  void* found = nullptr;
  int state = 0;
  if (find(name, &found, version, 0, &state) != 0 || found == nullptr) return false;
  out = reinterpret_cast<Function>(found);
  return true;
}

bool load(Library& cuda) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  const auto find = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
  return find != nullptr && take(find, "cuGraphCreate", 10000, cuda.create_graph) &&
         take(find, "cuGraphDestroy", 10000, cuda.destroy_graph) &&
         take(find, "cuStreamBeginCaptureToGraph", 12030, cuda.begin) &&
         take(find, "cuStreamUpdateCaptureDependencies", 11030, cuda.update) &&
         take(find, "cuStreamGetCaptureInfo", 12030, cuda.info) &&
         take(find, "cuStreamEndCapture", 10000, cuda.end) &&
         take(find, "cuGraphInstantiateWithFlags", 11040, cuda.instantiate) &&
         take(find, "cuGraphLaunch", 10000, cuda.launch_graph) &&
         take(find, "cuGraphExecDestroy", 10000, cuda.destroy_exec) &&
         take(find, "cuLaunchKernel", 4000, cuda.launch) && take(find, "cuStreamQuery", 2000, cuda.query) &&
         take(find, "cuEventCreate", 2000, cuda.create_event) &&
         take(find, "cuEventDestroy", 4000, cuda.destroy_event) &&
         take(find, "cuEventRecord", 2000, cuda.record) && take(find, "cuStreamWaitEvent", 3020, cuda.wait);
}

const Library* cuda_library() {
  static Library cuda;
  static const bool loaded = load(cuda);
  return loaded ? &cuda : nullptr;
}

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int wait_for(const Library& cuda, Handle stream) {
  int status = not_ready;
  while (status == not_ready) status = cuda.query(stream);
  return status;
}

// Streams of other contexts join the capture of the first stream by one event.
int open_capture(const Library& cuda, Handle graph, const Handle* streams, int count) {
  Handle event = nullptr;
  int status = cuda.begin(streams[0], graph, nullptr, nullptr, 0, relaxed);
  if (status == 0) status = cuda.create_event(&event, disable_timing);
  if (status == 0) status = cuda.record(event, streams[0]);
  for (int i = 1; i < count && status == 0; ++i) {
    status = cuda.wait(streams[i], event, 0);
    if (status == 0) status = cuda.update(streams[i], nullptr, 0, set);
  }
  if (event != nullptr) cuda.destroy_event(event);
  return status;
}

// What a task follows: two of the level before, and with `implied` its array's writer, which those follow.
int predecessors(const Handle* nodes, int task, bool implied, Handle* after) {
  const int level = task / lanes;
  const int lane = task % lanes;
  if (level == 0) return 0;
  const Handle* before = nodes + (level - 1) * lanes;
  after[0] = before[lane];
  after[1] = before[(lane + (level % 2 != 0 ? 1 : lanes - 1)) % lanes];
  if (!implied || level == 1) return 2;
  after[2] = nodes[(level - 2) * lanes + lane];
  return 3;
}

int record_tasks(const Library& cuda, Handle kernel, const Handle* streams, int count, std::uint64_t memory,
                 int tasks, bool implied) {
  std::vector<Handle> nodes(static_cast<std::size_t>(tasks));
  const int others = count - 1;
  for (int task = 0; task < tasks; ++task) {
    const int level = task / lanes;
    const int lane = task % lanes;
    const int target = 2 * lane + level % 2;
    Handle stream = others == 0 ? streams[0] : streams[1 + lane % others];
    Handle after[3] = {};
    const int found_before = predecessors(nodes.data(), task, implied, after);
    int status = cuda.update(stream, after, static_cast<std::size_t>(found_before), set);
    if (status != 0) return status;
    std::uint64_t to = memory + sizeof(std::uint32_t) * threads * static_cast<unsigned>(target);
    std::uint64_t from =
        memory + sizeof(std::uint32_t) * threads * static_cast<unsigned>((target + 1) % arrays);
    void* parameters[] = {&to, &from};
    status = cuda.launch(kernel, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
    if (status != 0) return status;
    int state = 0;
    Handle graph = nullptr;
    const Handle* next = nullptr;
    const void* edges = nullptr;
    std::size_t found = 0;
    status = cuda.info(stream, &state, nullptr, &graph, &next, &edges, &found);
    if (status != 0) return status;
    nodes[static_cast<std::size_t>(task)] = next[0];
  }
  return 0;
}

int close_capture(const Library& cuda, const Handle* streams, int count) {
  int status = 0;
  for (int i = count - 1; i >= 0; --i) {
    const int let_go = cuda.update(streams[i], nullptr, 0, set);
    if (status == 0) status = let_go;
  }
  Handle ended = nullptr;
  const int end = cuda.end(streams[0], &ended);
  return status != 0 ? status : end;
}

}  // namespace

// All return the driver's status, or -1 where libcuda or one of the entry points is missing.

// us: record, end of capture, instantiate. streams[0] is the capture's origin, of the current context; the
// tasks are on the others in turn, or on the origin where there are no others.
extern "C" int raw_graphs_record(Handle kernel, const Handle* streams, int count, std::uint64_t memory,
                                 int tasks, int implied, Handle* graph, Handle* exec, double* us) {
  const Library* cuda = cuda_library();
  if (cuda == nullptr) return missing;
  *graph = nullptr;
  *exec = nullptr;
  int status = cuda->create_graph(graph, 0);
  if (status != 0) return status;
  status = open_capture(*cuda, *graph, streams, count);
  auto begin = Clock::now();
  if (status == 0) status = record_tasks(*cuda, kernel, streams, count, memory, tasks, implied != 0);
  us[0] = us_since(begin);
  begin = Clock::now();
  const int closed = close_capture(*cuda, streams, count);
  us[1] = us_since(begin);
  if (closed != 0) *graph = nullptr;  // gone with the capture
  if (status == 0) status = closed;
  begin = Clock::now();
  if (status == 0) status = cuda->instantiate(exec, *graph, node_priority);
  us[2] = us_since(begin);
  return status;
}

// us: until all launches are submitted, and until they are done.
extern "C" int raw_graphs_launch(Handle exec, Handle stream, int launches, double* us) {
  const Library* cuda = cuda_library();
  if (cuda == nullptr) return missing;
  int status = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < launches && status == 0; ++i) status = cuda->launch_graph(exec, stream);
  us[0] = us_since(begin);
  if (status == 0) status = wait_for(*cuda, stream);
  us[1] = us_since(begin);
  return status;
}

extern "C" int raw_graphs_close(Handle graph, Handle exec) {
  const Library* cuda = cuda_library();
  if (cuda == nullptr) return missing;
  const int status = exec == nullptr ? 0 : cuda->destroy_exec(exec);
  const int destroyed = graph == nullptr ? 0 : cuda->destroy_graph(graph);
  return status != 0 ? status : destroyed;
}

// For the other systems, so that all wait and launch in the same way.
extern "C" int raw_graphs_wait(Handle stream) {
  const Library* cuda = cuda_library();
  return cuda == nullptr ? missing : wait_for(*cuda, stream);
}

extern "C" int raw_graphs_launch_kernel(Handle kernel, Handle stream, std::uint64_t to, std::uint64_t from) {
  const Library* cuda = cuda_library();
  if (cuda == nullptr) return missing;
  void* parameters[] = {&to, &from};
  return cuda->launch(kernel, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}
