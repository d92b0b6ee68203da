// Filling data with one value, as a task of its own.
#include <algorithm>
#include <cstring>

#include "core/context.hpp"
#include "core/entry.hpp"
#include "core/page_maps.hpp"
#include "core/tasks.hpp"

namespace stf_places {

namespace {
// The stream of a place that has the memory, or the first.
StreamHandle stream_on(const Task& task, int device) {
  for (std::size_t i = 1; i < task.stream_count(); ++i) {
    if (task.place_at(i).device == device) return task.stream(i);
  }
  return task.stream(0);
}

Status fill_all(Driver& driver, const Task& task, const void* value, std::size_t width) {
  const Dependency& filled = task.dependencies[0];
  const std::size_t nbytes = filled.data->nbytes();
  if (filled.place.pages == nullptr) {
    return driver.fill(task.address(0), filled.place.location(), value, width, nbytes / width,
                       task.stream(0));
  }
  // Pages hold whole elements, whose widths are powers of two.
  return filled.place.pages->each(0, nbytes, [&](std::size_t offset, std::size_t part, int device) {
    return driver.fill(task.address(0) + offset, DataPlace::on(device).location(), value, width, part / width,
                       stream_on(task, device));
  });
}
}  // namespace

// A graph has no fill of host memory, so it is a task of the host.
void Context::fill_on_host(Task& task, const void* value, std::size_t width) {
  task.place = ExecPlace::host();
  Tasks tasks(*this);
  tasks.open(task, Body::work, interrupt_);
  if (runtime_->driver().executes()) {
    auto* to = reinterpret_cast<unsigned char*>(task.address(0));
    const std::size_t nbytes = task.dependencies[0].data->nbytes();
    for (std::size_t at = 0; at < nbytes; at += width) std::memcpy(to + at, value, width);
  }
  tasks.close(task, Body::work, false, interrupt_);
}

void Context::fill(Data& data, const ExecPlace& exec, const DataPlace& where, const void* value,
                   std::size_t width) {
  Entry entry(*this);
  Task task;
  task.symbol = "fill " + data.label();
  task.place = exec;
  task.dependencies.push_back({&data, AccessMode::write, where});
  if (recording() && (where.kind == DataPlace::Kind::host || exec.kind == ExecPlace::Kind::host) &&
      !where.on_devices()) {
    return fill_on_host(task, value, width);
  }
  Tasks tasks(*this);
  tasks.open(task, Body::operation, {});
  if (recording_ && !(task.dependencies[0].place == DataPlace::on(task.place_at(0).device)))
    recording_->note_obstacle("it fills memory that is not the device's own");
  Status status;
  if (data.nbytes() != 0) status = fill_all(runtime_->driver(), task, value, width);
  tasks.close(task, Body::operation, !status.ok(), {});
  status.check();
}

}  // namespace stf_places
