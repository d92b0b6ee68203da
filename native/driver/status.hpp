// Results of driver operations and the one exception type of the native code.
//
// A driver operation returns a Status. It is one pointer wide, null when all went well, and carries the
// name of the call, the driver's own code and its name otherwise. Whoever cannot deal with a failure calls
// `check()`, which throws an Error; the Cython layer turns an Error into the Python exception that its kind
// names (native/cython/errors.pyx is the only place where that happens).
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace stf_places {

// What went wrong, in the terms in which callers decide. The driver's own number is kept in Failure::raw.
enum class Code : int {
  not_ready,       // asked for an event or stream that is still running
  out_of_memory,   // the place has no room left
  invalid_value,   // an argument that the driver refuses
  invalid_device,  // no such device
  not_supported,   // this driver (or the simulated machine) lacks the operation
  device_lost,     // a sticky error: every context of the process on that device is gone
  conflict,        // simulated machine: two operations touch the same bytes without an order between them
  forked,          // the driver was initialised before a fork
  interrupted,     // a signal arrived during a long wait
  failed,          // anything else
};

struct Failure {
  Code code = Code::failed;
  int raw = 0;  // the driver's own number (CUresult), 0 on the simulated machine unless a fault was ordered
  std::string call;    // "cuMemAllocAsync"
  std::string name;    // "CUDA_ERROR_OUT_OF_MEMORY"
  std::string detail;  // what was given and what would work
  int device = -1;     // the device concerned, -1 when none is
};

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  explicit Status(Failure failure) : failure_(std::make_unique<Failure>(std::move(failure))) {}

  bool ok() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return ok(); }
  bool is(Code code) const noexcept { return failure_ && failure_->code == code; }
  const Failure& failure() const noexcept { return *failure_; }
  // Throws the Error that this failure stands for; does nothing when ok.
  void check() const {
    if (failure_) raise();
  }
  // Says that a failure here changes nothing (clean-up after an earlier failure).
  void ignore() const noexcept {}

 private:
  [[noreturn]] void raise() const;
  std::unique_ptr<Failure> failure_;
};

// One kind for each Python exception of stf_places.errors (and for the built-in ones that the API promises).
enum class ErrorKind : int {
  driver,          // DriverError: call, code, name
  device_lost,     // DeviceLost
  not_supported,   // NotSupported
  out_of_memory,   // OutOfMemory
  context_closed,  // ContextClosed
  wrong_context,   // WrongContext
  task_state,      // TaskStateError
  poisoned,        // PoisonedData
  read_only,       // ReadOnlyError
  invalid_device,  // InvalidDevice
  conflict,        // DataRace
  partition,       // PartitionError
  value,           // ValueError
  index,           // IndexError
  interrupted,     // a Python exception is already set (KeyboardInterrupt): let it through
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind what_kind, const std::string& text) : std::runtime_error(text), kind(what_kind) {}
  Error(ErrorKind what_kind, const std::string& text, Failure of_driver)
      : std::runtime_error(text), kind(what_kind), failure(std::move(of_driver)) {}

  ErrorKind kind;
  Failure failure;  // meaningful for kinds driver, device_lost, not_supported, out_of_memory, invalid_device
};

// "0x7f00" for addresses and handles in messages. No C++ streams for that: where a copy of the C++ library is
// linked in statically and another is loaded, their locales get mixed up (seen as a segmentation fault).
std::string hexadecimal(std::uint64_t value);
// The exception kind that stands for a failed driver call.
ErrorKind kind_of(Code code) noexcept;
// "cuMemAllocAsync failed: CUDA_ERROR_OUT_OF_MEMORY (2): detail"
std::string text_of(const Failure& failure);

}  // namespace stf_places
