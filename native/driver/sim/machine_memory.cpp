// Allocations, copies and fills.
#include <cstring>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr double bytes_per_us(double gigabytes_per_second) { return gigabytes_per_second * 1e3; }

int device_of(const Allocation* allocation) { return allocation == nullptr ? -1 : allocation->where.device; }

}  // namespace

// ---- Allocations ----

// Lets pending frees happen where that can make room; whether it did is for the allocation to find out.
Status Machine::make_room(Lock& lock, const char* call, int device, std::size_t nbytes) {
  const bool fits = nbytes <= memory_.total(device);
  if (!fits || memory_.has_room(device, nbytes) || executor_ == std::this_thread::get_id()) return {};
  const auto reached = [&] { return memory_.has_room(device, nbytes) || effects_.pending() == 0; };
  return make_effects(lock, call, {}, reached);
}

Status Machine::allocate_device(int device, std::size_t nbytes, StreamHandle stream_handle, Address* out) {
  constexpr const char* call = "allocate_device";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (stream->device != device) {
    return fail(Code::invalid_value, call,
                "memory of device " + std::to_string(device) + " needs a stream of that device: got stream " +
                    std::to_string(stream->handle) + " of device " + std::to_string(stream->device),
                device);
  }
  if (Status status = strike_at_call(call, FaultKind::allocation, device); !status) return status;
  if (Status status = make_room(lock, call, device, nbytes); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  Allocation* allocation = nullptr;
  const Location where{Location::Kind::device, device};
  if (Status status = memory_.allocate(call, where, nbytes, &allocation); !status) return status;
  if (options_.check_conflicts) {
    touch({stream, OperationKind::allocation, {}, races_.begin_operation(stream)}, allocation,
          allocation->address, nbytes, true);
  }
  now_ += spec_.costs.allocate;
  *out = allocation->address;
  return {};
}

Status Machine::free_device(int device, Address address, StreamHandle stream_handle) {
  constexpr const char* call = "free_device";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  Allocation* allocation = nullptr;
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  const Location where{Location::Kind::device, device};
  if (Status status = memory_.owned(call, address, where, &allocation); !status) return status;
  if (options_.check_conflicts) {
    touch({stream, OperationKind::release, {}, races_.begin_operation(stream)}, allocation, address,
          allocation->nbytes, true);
  }
  memory_.retire(allocation);
  Operation* operation = take(OperationKind::release, stream);
  operation->allocation = allocation;
  submit(operation, spec_.costs.allocate);
  bound_pending(lock);
  return {};
}

Status Machine::trim_device(int device) {
  constexpr const char* call = "trim_device";
  if (Status status = fork_.check(call); !status) return status;
  // Freed memory is given back as it is freed, so there is nothing to trim.
  const Lock lock(mutex_);
  return find_device(call, device);
}

Status Machine::allocate_elsewhere(const char* call, Location where, std::size_t nbytes, Address* out) {
  if (Status status = strike_at_call(call, FaultKind::allocation, where.device); !status) return status;
  Allocation* allocation = nullptr;
  if (Status status = memory_.allocate(call, where, nbytes, &allocation); !status) return status;
  now_ += spec_.costs.allocate;
  *out = allocation->address;
  return {};
}

Status Machine::free_elsewhere(const char* call, Address address, Location::Kind kind) {
  Allocation* allocation = nullptr;
  if (Status status = memory_.owned(call, address, Location{kind, -1}, &allocation); !status) return status;
  if (options_.check_conflicts) races_.host_free(allocation->shadow, address, allocation->owner());
  memory_.retire(allocation);
  memory_.uncount(allocation);
  unreclaimed_.push_back({allocation, sequence_});
  reclaim_released();
  now_ += spec_.costs.allocate;
  return {};
}

Status Machine::allocate_host(std::size_t nbytes, Address* out) {
  constexpr const char* call = "allocate_host";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  return allocate_elsewhere(call, Location{Location::Kind::host, -1}, nbytes, out);
}

Status Machine::free_host(Address address) {
  constexpr const char* call = "free_host";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  return free_elsewhere(call, address, Location::Kind::host);
}

Status Machine::allocate_managed(std::size_t nbytes, int device, Address* out) {
  constexpr const char* call = "allocate_managed";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (device != -1) {
    if (Status status = find_device(call, device); !status) return status;
  }
  return allocate_elsewhere(call, Location{Location::Kind::managed, device}, nbytes, out);
}

Status Machine::free_managed(Address address) {
  constexpr const char* call = "free_managed";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  return free_elsewhere(call, address, Location::Kind::managed);
}

// ---- Copies and fills ----

void Machine::touch(const Actor& actor, Allocation* allocation, Address address, std::size_t nbytes,
                    bool write, bool partial) {
  const Address end = address + nbytes;
  if (allocation == nullptr) {
    races_.touch(races_.host_range(address, end), actor, {address, end, write, partial}, address,
                 [&] { return "host memory at " + hexadecimal(address); });
    return;
  }
  for (; allocation != nullptr && allocation->address < end; allocation = memory_.next(allocation)) {
    const Address from = std::max(address, allocation->address);
    const Address to = std::min(end, allocation->end());
    races_.touch(allocation->shadow, actor, {from, to, write, partial}, allocation->address,
                 [&] { return allocation->owner(); });
    if (end <= allocation->end()) return;
  }
}

// Ends: device ordinals, -1 for the host. Counts the bytes on the links as well.
void Machine::time_copy(Operation* operation, int from, int to) {
  const auto nbytes = static_cast<double>(operation->nbytes);
  const int own = operation->stream->device;
  if (from == to) {
    const double bandwidth =
        from >= 0 ? spec_.devices[from].bandwidth : spec_.links[link_index(-1, own)].bandwidth;
    operation->engine = from >= 0;
    operation->duration_us = spec_.costs.kernel_latency + nbytes / bytes_per_us(bandwidth);
    return;
  }
  operation->engine = true;
  const int direct = link_index(from, to);
  const int ways[2] = {direct >= 0 ? direct : link_index(from, -1), direct >= 0 ? -1 : link_index(-1, to)};
  operation->duration_us = 0;
  for (int i = 0; i < 2; ++i) {
    operation->links[i] = static_cast<short>(ways[i]);
    if (ways[i] < 0) continue;
    const LinkSpec& link = spec_.links[ways[i]];
    operation->duration_us += link.latency_us + nbytes / bytes_per_us(link.bandwidth);
    traffic(link.from, link.to) += operation->nbytes;
  }
}

// An end of a copy or fill: what lies there, and whether the stream's device reaches it.
Status Machine::check_end(const char* call, const Stream* stream, Address address, std::size_t nbytes,
                          Location at, Allocation** out) {
  if (Status status = memory_.resolve(call, address, nbytes, &at, out); !status) return status;
  return memory_.reaches(call, stream->device, *out, address + nbytes);
}

Status Machine::check_transfer(const char* call, const Stream* stream, const Transfer& transfer,
                               std::vector<Allocation*>* found) {
  Allocation* source = nullptr;
  Allocation* target = nullptr;
  for (const Location& at : {transfer.to_at, transfer.from_at}) {
    if (at.kind != Location::Kind::device) continue;
    if (Status status = find_device(call, at.device); !status) return status;
  }
  const std::size_t nbytes = transfer.nbytes;
  if (nbytes != 0 && transfer.width == 0) {
    if (Status status = check_end(call, stream, transfer.from, nbytes, transfer.from_at, &source); !status)
      return status;
  }
  if (nbytes != 0) {
    if (Status status = check_end(call, stream, transfer.to, nbytes, transfer.to_at, &target); !status)
      return status;
  }
  found->push_back(source);
  found->push_back(target);
  return {};
}

void Machine::put_transfer(Stream* stream, const Transfer& transfer, std::span<Allocation* const> ends,
                           double cost_us) {
  const bool is_copy = transfer.width == 0;
  Allocation* source = is_copy ? ends[0] : ends[1];
  Operation* operation = take(is_copy ? OperationKind::copy : OperationKind::fill, stream);
  operation->to = transfer.to;
  operation->from = transfer.from;
  operation->nbytes = transfer.nbytes;
  operation->width = transfer.width;
  std::memcpy(operation->value, transfer.value, transfer.width);
  strike(FaultKind::copy, operation);
  time_copy(operation, device_of(source), device_of(ends[1]));
  if (options_.check_conflicts && transfer.nbytes != 0) {
    const Actor actor{stream, operation->kind, {}, races_.begin_operation(stream)};
    if (is_copy) touch(actor, source, transfer.from, transfer.nbytes, false);
    touch(actor, ends[1], transfer.to, transfer.nbytes, true);
  }
  submit(operation, cost_us);
}

Status Machine::enqueue(const char* call, const Transfer& transfer, StreamHandle stream_handle) {
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_stream(call, stream_handle, &stream, Recording::allowed); !status) return status;
  touched_.clear();
  if (Status status = check_transfer(call, stream, transfer, &touched_); !status) return status;
  if (stream->graph != nullptr) {
    Node node;
    node.kind = transfer.width == 0 ? OperationKind::copy : OperationKind::fill;
    node.transfer = transfer;
    record(stream, std::move(node), touched_);
    return {};
  }
  put_transfer(stream, transfer, touched_, spec_.costs.copy_submit);
  bound_pending(lock);
  return {};
}

Status Machine::copy(Address to, Location to_at, Address from, Location from_at, std::size_t nbytes,
                     StreamHandle stream) {
  return enqueue("copy", Transfer{to, to_at, from, from_at, nbytes}, stream);
}

Status Machine::fill(Address to, Location at, const void* value, std::size_t width, std::size_t count,
                     StreamHandle stream) {
  constexpr const char* call = "fill";
  if (Status status = fork_.check(call); !status) return status;
  if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16) {
    return fail(Code::invalid_value, call,
                "elements have 1, 2, 4, 8 or 16 bytes: got " + std::to_string(width));
  }
  Transfer transfer{to, at, 0, {}, width * count};
  transfer.width = width;
  std::memcpy(transfer.value, value, width);
  return enqueue(call, transfer, stream);
}

}  // namespace stf_places::sim
