#include <chrono>
#include <cstring>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr double look_ms = 5;             // longest time between two looks at signals
constexpr std::size_t quick_copy = 4096;  // shorter copies are made without giving the mutex up

double wall_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

void make_fill(const Operation& operation) {
  auto* to = static_cast<unsigned char*>(pointer(operation.to));
  if (operation.width == 1) {
    std::memset(to, operation.value[0], operation.nbytes);
    return;
  }
  if (operation.nbytes == 0) return;
  // Doubling copies of what is already there, at memcpy's speed.
  std::memcpy(to, operation.value, operation.width);
  for (std::size_t done = operation.width; done < operation.nbytes;) {
    const std::size_t more = std::min(done, operation.nbytes - done);
    std::memcpy(to + done, to, more);
    done += more;
  }
}

}  // namespace

Status Machine::refuse_in_callback(const char* call) const {
  if (executor_ != std::this_thread::get_id()) return {};
  return fail(Code::invalid_value, call,
              "a host function must not wait for the machine that runs it: wait after the work instead");
}

// Becomes the executor, or waits a moment for the one that is at work.
Status Machine::take_turn(Lock& lock, const char* call, const Interrupt& interrupt, bool* waited) {
  if (Status status = refuse_in_callback(call); !status) return status;
  if (executor_ == std::thread::id()) {
    executor_ = std::this_thread::get_id();
    return {};
  }
  *waited = true;
  turn_ended_.wait_for(lock, std::chrono::duration<double, std::milli>(look_ms));
  return check_interrupt(lock, call, interrupt);
}

void Machine::end_turn() {
  executor_ = std::thread::id();
  turn_ended_.notify_all();
}

Status Machine::check_interrupt(Lock& lock, const char* call, const Interrupt& interrupt) {
  if (interrupt.check == nullptr) return {};
  lock.unlock();
  const bool pending = interrupt.pending();
  lock.lock();
  if (!pending) return {};
  return fail(Code::interrupted, call, "a signal arrived during the wait");
}

bool Machine::make_next(Lock& lock, Batch& batch) {
  Operation* operation = effects_.take();
  if (operation == nullptr) return false;
  ++batch.count;
  effects_.set_running(true);
  make_effect(lock, operation, batch);
  effects_.set_running(false);
  effects_.made();
  operation->stream->effected = operation->sequence;
  pool_.effect_done(operation);
  if (!unreclaimed_.empty()) reclaim_released();
  return true;
}

// Whether an earlier failure keeps the operation from being run.
bool Machine::skips(const Operation* operation) { return failed_on(operation->stream, operation->sequence); }

void Machine::make_effect(Lock& lock, Operation* operation, Batch& batch) {
  Stream& stream = *operation->stream;
  bool skip = skips(operation);
  if (operation->has_fault && !skip) {
    fail_operation(operation);
    skip = true;
  }
  switch (operation->kind) {
    case OperationKind::record: {
      const auto& lost = lost_[stream.device];
      operation->record->effected = true;
      if (skip) operation->record->failure = lost != nullptr ? lost : stream.failure;
      return;
    }
    case OperationKind::wait: {
      const auto& failure = operation->record->failure;
      if (skip || failure == nullptr || operation->sequence > failure->reported_at) return;
      stream.failure = failure;
      stream.unreported = !stream.internal;
      return;
    }
    case OperationKind::release:
      memory_.uncount(operation->allocation);
      unreclaimed_.push_back({operation->allocation, operation->sequence});
      return;
    default:
      act(lock, operation, skip, batch);
  }
}

// Copies, fills and calls, with the mutex given up around what can take long or call back.
void Machine::act(Lock& lock, Operation* operation, bool skip, Batch& batch) {
  const bool call = operation->function != nullptr || operation->release != nullptr;
  const bool bytes = options_.execute && !skip && operation->nbytes != 0 &&
                     (operation->kind == OperationKind::copy || operation->kind == OperationKind::fill);
  if (!call && !bytes) return;
  const bool slow = call || operation->nbytes > quick_copy;
  if (slow && !batch.started_ms) batch.started_ms = wall_ms();
  if (slow) lock.unlock();
  if (operation->kind == OperationKind::copy && bytes) {
    std::memmove(pointer(operation->to), pointer(operation->from), operation->nbytes);
  } else if (bytes) {
    make_fill(*operation);
  } else if (call) {
    // Host functions are called on a machine that does not execute as well: they are how the core keeps its
    // own books. Work stands for bodies, which are not run there.
    const bool runs = !skip && (options_.execute || operation->kind == OperationKind::host_function);
    if (runs && operation->function != nullptr) operation->function(operation->argument);
    if (operation->release != nullptr) operation->release(operation->argument);
  }
  if (slow) {
    // A look at signals before the next host function, which would be the one that a Ctrl-C ends.
    batch.late = call || wall_ms() - *batch.started_ms > look_ms;
    lock.lock();
  }
}

void Machine::fail_operation(Operation* operation) {
  Stream& stream = *operation->stream;
  const Failure failed =
      failure(operation->fault, "",
              text_of(operation->kind, operation->nbytes, operation->symbol) + " failed on stream " +
                  std::to_string(stream.handle) + " of device " + std::to_string(stream.device) +
                  " (an ordered fault); what follows it was not run",
              stream.device);
  stream.failure = std::make_shared<StreamFailure>(StreamFailure{failed});
  stream.unreported = !stream.internal;
  if (operation->fault == Code::device_lost) lose_device(stream.device, failed);
}

// In program order nothing pending can touch what a release has passed; in chaos order an unordered operation
// can, which is a race to report and no reason to corrupt memory.
void Machine::reclaim_released() {
  std::erase_if(unreclaimed_, [&](const Unreclaimed& one) {
    if (!effects_.made_up_to(one.sequence)) return false;
    if (one.allocation != nullptr) {
      memory_.reclaim(one.allocation);
    } else {
      memory_.give_back(one.address, one.nbytes);
    }
    return true;
  });
}

}  // namespace stf_places::sim
