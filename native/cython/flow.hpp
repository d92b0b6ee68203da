// Small questions about tasks, places and runtimes, put so that Cython needs no nested types.
#pragma once

#include "core/context.hpp"

namespace stf_places {

inline DataPlace host_place() { return DataPlace::host(); }
inline bool is_host(const DataPlace& place) { return place.kind == DataPlace::Kind::host; }
inline bool is_managed(const DataPlace& place) { return place.kind == DataPlace::Kind::managed; }
inline bool is_device(const DataPlace& place) { return place.kind == DataPlace::Kind::device; }
inline bool is_affine(const DataPlace& place) { return place.kind == DataPlace::Kind::affine; }
inline bool is_composite(const DataPlace& place) { return place.kind == DataPlace::Kind::composite; }
inline bool is_replicated(const DataPlace& place) { return place.kind == DataPlace::Kind::replicated; }
inline bool is_host(const ExecPlace& place) { return place.kind == ExecPlace::Kind::host; }

// The memory behind a dependency of an open task is read and written by the CPU without more ado.
inline bool cpu_reaches(const Task& task, std::size_t index, const Runtime& runtime) {
  return runtime.simulated() || is_host(task.dependencies[index].place);
}

inline bool executes(const Runtime& runtime) { return runtime.driver().executes(); }

inline void synchronize_stream(const Runtime& runtime, StreamHandle stream, const Interrupt& interrupt) {
  runtime.driver().synchronize_stream(stream, interrupt).check();
}

}  // namespace stf_places
