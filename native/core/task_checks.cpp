// What a task is checked for before anything happens: its places, and how it uses its data.
#include <algorithm>

#include "core/page_maps.hpp"
#include "core/place_contexts.hpp"
#include "core/scope.hpp"
#include "core/tasks.hpp"

namespace stf_places {

void Tasks::resolve_place(Task& task, ContextHandle current) {
  Runtime& runtime = context_.runtime();
  task.resolved_ = task.place;
  if (task.place.kind == ExecPlace::Kind::current) {
    task.resolved_.kind = ExecPlace::Kind::device;
    task.resolved_.device = current == 0 ? 0 : runtime.current_device();
  } else if (task.place.kind == ExecPlace::Kind::grid) {
    if (!task.place.places || task.place.places->empty()) {
      throw Error(ErrorKind::value, "a task needs at least one place: the grid is empty");
    }
    for (const ExecPlace& place : *task.place.places) {
      if (place.kind == ExecPlace::Kind::host || place.kind == ExecPlace::Kind::grid) {
        throw Error(ErrorKind::value, "a grid task runs on devices and partitions: got " + to_string(place));
      }
      require_usable(place, runtime.driver());
      runtime.check_device(place.device);
    }
  } else if (task.place.kind != ExecPlace::Kind::host) {
    require_usable(task.place, runtime.driver());
    runtime.check_device(task.place.device);
  }
}

namespace {
template <class Visit>
void each_owner(const ExecPlace& place, Visit visit) {
  if (place.owner) visit(*place.owner);
  if (place.kind != ExecPlace::Kind::grid || !place.places) return;
  for (const ExecPlace& member : *place.places) {
    if (member.owner) visit(*member.owner);
  }
}
}  // namespace

// What a repartition of the places looks at.
void Tasks::enter_places(const Task& task) {
  each_owner(task.place, [](PlaceContext& owner) { owner.enter(); });
}

void Tasks::leave_places(const Task& task) {
  each_owner(task.place, [](PlaceContext& owner) { owner.leave(); });
}

void Tasks::resolve_data_place(const Task& task, Dependency& dependency) const {
  if (dependency.data->token()) {
    dependency.place = DataPlace::host();
  } else if (dependency.place.kind == DataPlace::Kind::affine) {
    dependency.place = task.affine.kind != DataPlace::Kind::affine ? task.affine : affine_of(task.resolved_);
  }
  dependency.merged = dependency.mode;
  dependency.instance = nullptr;
}

// The same data on the same place counts once, with the modes of all; what is written is on one place.
void Tasks::unite(Task& task, Dependency& dependency) {
  for (Dependency* other : task.unique_) {
    if (other->data != dependency.data) continue;
    if (other->place == dependency.place) {
      other->merged =
          static_cast<AccessMode>(static_cast<int>(other->merged) | static_cast<int>(dependency.mode));
      return;
    }
    if (writes(other->merged) || writes(dependency.mode)) {
      throw Error(ErrorKind::value, dependency.data->label() +
                                        " is written by a task that also asks for it on "
                                        "another data place: got " +
                                        to_string(other->place) + " and " + to_string(dependency.place) +
                                        "; use one place");
    }
  }
  task.unique_.push_back(&dependency);
}

// Puts replicated dependencies on each device of the task's places.
void Tasks::replicate(Task& task) const {
  const auto replicated = [](const Dependency& one) { return one.place.kind == DataPlace::Kind::replicated; };
  if (std::none_of(task.dependencies.begin(), task.dependencies.end(), replicated)) return;
  std::vector<int> devices;
  const bool grid = task.resolved_.kind == ExecPlace::Kind::grid;
  const std::size_t count = grid ? task.resolved_.places->size() : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const int device = task.place_at(i).device;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  for (std::size_t i = 0; i < task.dependencies.size(); ++i) {
    Dependency& dependency = task.dependencies[i];
    if (dependency.place.kind != DataPlace::Kind::replicated) continue;
    if (dependency.data == nullptr || dependency.data->token()) continue;
    if (writes(dependency.mode)) {
      throw Error(ErrorKind::value, task.label() + " writes " + dependency.data->label() +
                                        " on replicated(), where each device has a copy: only read() can be "
                                        "replicated; write it on one place");
    }
    const auto on = [](int device) { return device < 0 ? DataPlace::host() : DataPlace::on(device); };
    dependency.place = on(devices.front());
    for (std::size_t at = 1; at < devices.size(); ++at) {
      auto replica = std::make_unique<Dependency>(dependency);
      replica->place = on(devices[at]);
      replica->merged = replica->mode;
      task.replicas_.emplace_back(i, std::move(replica));
    }
  }
}

void Tasks::merge(Task& task) const {
  task.unique_.clear();
  replicate(task);
  for (Dependency& dependency : task.dependencies) {
    if (dependency.data == nullptr)
      throw Error(ErrorKind::wrong_context, "the data belongs to no context: a task takes data of its own");
    resolve_data_place(task, dependency);
    if (dependency.data->context_ != &context_) take_over(dependency);
    unite(task, dependency);
  }
  for (const auto& replica : task.replicas_) {
    if (replica.second->data->context_ != &context_) take_over(*replica.second);
    unite(task, *replica.second);
  }
}

// Data of a context around a scope are taken into it by the first task that uses them.
void Tasks::take_over(Dependency& dependency) const {
  if (context_.scope_ == nullptr) refuse_foreign(*dependency.data);
  dependency.data = &context_.scope_->bring(*dependency.data, dependency.place);
}

void refuse_foreign(const Data& data) {
  const char* why = data.context() == nullptr
                        ? " belongs to a context that was finalized, or to a scope that has ended"
                        : " belongs to another context";
  throw Error(ErrorKind::wrong_context, data.label() + why + ": a task takes data of its own context only");
}

void Tasks::check(const Task& task, const Dependency& access) const {
  const Data& data = *access.data;
  if (writes(access.merged) && data.options_.read_only) {
    throw Error(ErrorKind::read_only, data.label() + " is read-only, and " + task.label() +
                                          " asks to write it: use read(), or register a writable copy");
  }
  if (reads(access.merged)) data.require_whole();
  for (const auto& instance : data.instances_) {
    if (!instance->open_writer && !(writes(access.merged) && instance->open_readers > 0)) continue;
    throw Error(ErrorKind::task_state, data.label() +
                                           " is in use by a task whose body is still open: end that "
                                           "task before " +
                                           task.label() + " starts");
  }
}

// Memory of another device is used where it lies; access is granted when it is first asked for.
void Tasks::check_reach(const Task& task, std::size_t index) const {
  const Dependency& access = task.dependencies[index];
  if (!access.place.on_devices() || access.place == DataPlace::on(task.resolved_.device)) return;
  for (const auto& replica : task.replicas_) {
    if (replica.first == index) return;  // each place uses its own
  }
  Runtime& runtime = context_.runtime();
  const PageMap* pages = access.place.pages;
  if (pages == nullptr) runtime.check_device(access.place.device);
  const auto reaches = [&](int device) {
    if (pages == nullptr) return runtime.peers(device, access.place.device);
    return pages->used_by(device) || std::all_of(pages->devices().begin(), pages->devices().end(),
                                                 [&](int owner) { return runtime.peers(device, owner); });
  };
  auto check_place = [&](const ExecPlace& place) {
    if (place.kind == ExecPlace::Kind::host || reaches(place.device)) return;
    throw Error(ErrorKind::value, task.label() + " on " + to_string(place) + " cannot use " +
                                      access.data->label() + " on " + to_string(access.place) +
                                      ": these devices have no peer access; use the place's own memory, "
                                      "host() or managed()");
  };
  if (task.resolved_.kind != ExecPlace::Kind::grid) return check_place(task.resolved_);
  for (const ExecPlace& place : *task.resolved_.places) check_place(place);
}

}  // namespace stf_places
