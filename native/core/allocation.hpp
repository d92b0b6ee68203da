// Memory that a program asks for itself (data_place.allocate, DeviceArray), outside of every context.
//
// Stream 0 means the default stream of the place's device (of the current device for host and managed
// memory), whatever context is current on the calling thread. All functions throw Error and are called
// without the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/places.hpp"
#include "core/runtime.hpp"

namespace stf_places {

// Makes a context current for the scope's life, and what was current before at its end.
class CurrentContext {
 public:
  CurrentContext(Driver& driver, ContextHandle context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  Driver& driver_;
  ContextHandle before_ = 0;
  bool changed_ = false;
};

// Device memory is usable by what follows on `stream`; with stream 0 by every stream, at once. Host, managed
// and page-mapped memory is usable by every stream. No bytes: address 0.
Address allocate_at(Runtime& runtime, const DataPlace& place, std::size_t nbytes, StreamHandle stream);
// Device memory goes back in the order of `stream`; other memory after a wait for it.
void free_at(Runtime& runtime, const DataPlace& place, Address address, StreamHandle stream);
// The same where nobody can be told: returns the text of the failure, "" when all went well or when the
// memory is gone anyway (device lost, forked child).
std::string try_free_at(Runtime& runtime, const DataPlace& place, Address address,
                        StreamHandle stream) noexcept;

// An array in the memory of a place. Strides are in bytes and may be negative; `address` is element (0, ...,
// 0).
struct StridedArray {
  Address address = 0;
  Address block = 0;  // where the memory begins that was allocated
  DataPlace place;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::size_t itemsize = 1;
};

// Copy to or from C-contiguous host memory behind what precedes on `stream`, one piece for each contiguous
// run, and wait. Only the wait for earlier work can be interrupted: a copy that has begun is waited for,
// because the host memory may go away after the return.
void copy_to_host(Runtime& runtime, const StridedArray& from, void* to, StreamHandle stream,
                  const Interrupt& interrupt);
void copy_from_host(Runtime& runtime, const void* from, const StridedArray& to, StreamHandle stream,
                    const Interrupt& interrupt);

void synchronize_at(Runtime& runtime, const DataPlace& place, StreamHandle stream,
                    const Interrupt& interrupt);
// What follows on `later` waits for what precedes on `earlier`.
void order_streams(Runtime& runtime, const DataPlace& place, StreamHandle earlier, StreamHandle later);

}  // namespace stf_places
