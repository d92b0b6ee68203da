// Work in the body of an open task, and what it says of it for the simulated machine.
#include <algorithm>

#include "core/tasks.hpp"

namespace stf_places {

Address Task::address(std::size_t index, std::size_t at) const {
  for (const auto& [number, replica] : replicas_) {
    if (number == index && replica->place.device == place_at(at).device) return replica->instance->address;
  }
  return address(index);
}

void Task::set_parts(std::size_t at, std::vector<PartAccess> parts) {
  if (parts_.size() <= at) parts_.resize(at + 1);
  parts_[at] = std::move(parts);
}

// What is replicated is used by each place on its own device.
bool Tasks::uses(const Task& task, std::size_t place, const Dependency& access) {
  for (const auto& [number, replica] : task.replicas_) {
    if (replica.get() != &access && &task.dependencies[number] != &access) continue;
    return access.place.device == task.place_at(place).device;
  }
  return true;
}

Tasks::Accesses Tasks::accesses(const Task& task, std::size_t place, bool shared) {
  Accesses result;
  const auto add = [&](Address address, std::size_t nbytes, std::size_t used, bool write) {
    if (address != 0 && nbytes != 0) result.push_back({address, nbytes, write, used});
  };
  if (place < task.parts_.size()) {
    for (const PartAccess& part : task.parts_[place]) {
      const Address address = task.address(part.dependency, place);
      if (address != 0) add(address + part.offset, part.nbytes, part.used, part.write);
    }
    return result;
  }
  // Who enqueues on several streams of a grid and does not say more is taken to use an equal part on each.
  const std::size_t share = shared ? task.streams_.size() : 1;
  for (const Dependency* access : task.unique_) {
    if (!uses(task, place, *access)) continue;
    const std::size_t nbytes = access->data->nbytes();
    const std::size_t used = share == 1 ? 0 : std::max<std::size_t>(1, nbytes / share);
    if (reads(access->merged)) add(access->instance->address, nbytes, used, false);
    if (writes(access->merged)) add(access->instance->address, nbytes, used, true);
  }
  return result;
}

namespace {
Work work_of(const Task& task, const std::string& label, double cost_us, std::span<const Access> touched,
             std::uint64_t whole) {
  Work work;
  work.symbol = label;
  work.cost_us = cost_us;
  work.sms = task.sms;
  work.waves = task.waves;
  work.accesses = touched;
  work.whole = whole;
  return work;
}
}  // namespace

Status Tasks::describe_body(Task& task) {
  const auto ran = [](int count) { return count != 0; };
  if (std::any_of(task.runs_.begin(), task.runs_.end(), ran)) return {};  // the work enqueued says it all
  const std::string label = task.label();
  for (std::size_t i = 0; i < task.streams_.size(); ++i) {
    // The places of a grid share the data; who touches what is told by shards, and else the first touches it.
    const bool told = i < task.parts_.size();
    const Accesses touched = i == 0 || told ? accesses(task, i, false) : Accesses{};
    const Work work = work_of(task, label, task.cost_us, {touched.data(), touched.size()}, task.whole_);
    Status status = context_.runtime().driver().end_body(task.streams_[i]->handle(), work);
    if (!status.ok()) return status;
  }
  return {};
}

void Tasks::run(Task& task, std::size_t place, HostFunction function, HostFunction release, void* argument) {
  if (task.state_ != Task::State::open) {
    release(argument);
    throw Error(ErrorKind::task_state, task.label() + " is not open: run() belongs inside its body");
  }
  const Accesses touched = accesses(task, place, true);
  const std::string label = task.label();
  // The cost hint is that of all a place does: its first piece of work takes it.
  const double cost_us = task.runs_[place] == 0 ? task.cost_us : 0;
  ++task.runs_[place];
  context_.runtime()
      .driver()
      .host_work(task.streams_[place]->handle(), function, release, argument,
                 work_of(task, label, cost_us, {touched.data(), touched.size()}, task.whole_))
      .check();
}

void Tasks::launch(Task& task, std::size_t place, const KernelLaunch& kernel) {
  if (task.state_ != Task::State::open) {
    throw Error(ErrorKind::task_state, task.label() + " is not open: launch() belongs inside its body");
  }
  if (task.resolved_.kind == ExecPlace::Kind::host) {
    throw Error(ErrorKind::value, task.label() +
                                      " is on the host: launch() needs a place with SMs, such as "
                                      "exec_place.device(0)");
  }
  Driver& driver = context_.runtime().driver();
  if (driver.simulated()) {
    throw Error(ErrorKind::not_supported,
                "a device kernel cannot run on simulated machine '" + std::string(driver.machine()) +
                    "': " + task.label() +
                    " can do its work with run(fn, ...) there, or with a launch that runs on both, such as "
                    "stf_places.interop.warp.launch");
  }
  Work work;  // CUDA wants no accesses
  const std::string label = task.symbol.empty() ? task.label() : std::string();
  work.symbol = task.symbol.empty() ? label : task.symbol;
  driver.launch(kernel, task.streams_[place]->handle(), work).check();
}

}  // namespace stf_places
