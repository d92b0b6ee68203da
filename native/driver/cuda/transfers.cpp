#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "contexts.hpp"
#include "cuda_driver.hpp"

namespace stf_places::cuda {

Status CudaDriver::copy(Address to, Location to_at, Address from, Location from_at, std::size_t nbytes,
                        StreamHandle stream) {
  if (nbytes == 0) return {};
  bool between = to_at.kind == Location::Kind::device && from_at.kind == Location::Kind::device &&
                 to_at.device != from_at.device;
  if (between && !copies_directly(to, to_at.device, from, from_at.device))
    return copy_between_peers(to, to_at.device, from, from_at.device, nbytes, stream);
  auto handle = from_handle<CUstream>(stream);
  // Unified addressing: the driver sees from the addresses where they lie.
  return in_context_of(api_, greens_, handle, [&] { return api_.MemcpyAsync(to, from, nbytes, handle); });
}

// Access to page-mapped memory is granted by piece, whatever enable_peer_access did. With both devices able
// to reach all of the copy, a stream of either does it; else the call that names both devices serves streams
// of both, while the plain one depends on the stream.
bool CudaDriver::copies_directly(Address to, int to_device, Address from, int from_device) const {
  const std::optional<bool> source = pages_.granted(from, to_device);
  const std::optional<bool> target = pages_.granted(to, from_device);
  const bool there = source.value_or(devices_.reaches(to_device, from_device));
  const bool back = target.value_or(devices_.reaches(from_device, to_device));
  return source || target ? there && back : there || back;
}

Status CudaDriver::copy_between_peers(Address to, int to_device, Address from, int from_device,
                                      std::size_t nbytes, StreamHandle stream) {
  CUcontext target = nullptr, source = nullptr;
  if (Status status = devices_.primary(to_device, &target); !status) return status;
  if (Status status = devices_.primary(from_device, &source); !status) return status;
  auto handle = from_handle<CUstream>(stream);
  return in_context_of(api_, greens_, handle,
                       [&] { return api_.MemcpyPeerAsync(to, target, from, source, nbytes, handle); });
}

Status CudaDriver::fill(Address to, Location at, const void* value, std::size_t width, std::size_t count,
                        StreamHandle stream) {
  if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16)
    return Status(Failure{Code::invalid_value, 0, "fill", "",
                          "elements of 1, 2, 4, 8 or 16 bytes can be filled: got " + std::to_string(width)});
  if (count == 0) return {};
  if (at.kind == Location::Kind::host) return fill_host(to, value, width, count, stream);
  return fill_device(to, value, width, count, stream);
}

Status CudaDriver::fill_device(Address to, const void* value, std::size_t width, std::size_t count,
                               StreamHandle stream) {
  auto bytes = static_cast<const unsigned char*>(value);
  // A value whose halves are equal (zero, above all) is a fill of narrower elements.
  while (width > 1 && std::memcmp(bytes, bytes + width / 2, width / 2) == 0) {
    width /= 2;
    count *= 2;
  }
  return width <= 4 ? fill_narrow(to, bytes, width, count, stream)
                    : fill_wide(to, bytes, width, count, stream);
}

Status CudaDriver::fill_narrow(Address to, const unsigned char* value, std::size_t width, std::size_t count,
                               StreamHandle stream) {
  auto handle = from_handle<CUstream>(stream);
  return in_context_of(api_, greens_, handle, [&] {
    unsigned short two = 0;
    unsigned int four = 0;
    switch (width) {
      case 1:
        return api_.MemsetD8Async(to, *value, count, handle);
      case 2:
        std::memcpy(&two, value, sizeof two);
        return api_.MemsetD16Async(to, two, count, handle);
      default:
        std::memcpy(&four, value, sizeof four);
        return api_.MemsetD32Async(to, four, count, handle);
    }
  });
}

// The first rows are set word by word with a pitch of one element; the rest are copies of them, twice as many
// each time. So the number of rows of a strided fill, which no document bounds, stays small, and the bulk
// runs at the speed of a copy.
Status CudaDriver::fill_wide(Address to, const unsigned char* value, std::size_t width, std::size_t count,
                             StreamHandle stream) {
  constexpr std::size_t first_rows = 32768;
  auto handle = from_handle<CUstream>(stream);
  std::size_t rows = std::min(count, first_rows);
  for (std::size_t offset = 0; offset < width; offset += 4) {
    unsigned int word = 0;
    std::memcpy(&word, value + offset, sizeof word);
    Status status = in_context_of(api_, greens_, handle, [&] {
      return api_.MemsetD2D32Async(to + offset, width, word, /*Width=*/1, rows, handle);
    });
    if (!status) return status;
  }
  for (std::size_t done = rows; done < count;) {
    std::size_t more = std::min(done, count - done);
    Status status = in_context_of(
        api_, greens_, handle, [&] { return api_.MemcpyAsync(to + done * width, to, more * width, handle); });
    if (!status) return status;
    done += more;
  }
  return {};
}

namespace {

struct HostFill {
  unsigned char* to;
  unsigned char value[16];
  std::size_t width;
  std::size_t count;
};

void CUDA_CB run_host_fill(void* argument) {
  std::unique_ptr<HostFill> fill(static_cast<HostFill*>(argument));
  for (std::size_t i = 0; i < fill->count; ++i)
    std::memcpy(fill->to + i * fill->width, fill->value, fill->width);
}

}  // namespace

// Host memory may be pageable, which no fill of the driver reaches: a host function does it, in stream order.
// (The driver drops host functions after a context error; the few bytes of the record are lost with the
// context.)
Status CudaDriver::fill_host(Address to, const void* value, std::size_t width, std::size_t count,
                             StreamHandle stream) {
  bool capturing = false;
  if (Status status = stream_capturing(stream, &capturing); !status) return status;
  if (capturing)
    return Status(
        Failure{Code::not_supported, 0, "fill", "",
                "host memory cannot be filled in a stream that is being captured, because a graph may "
                "run more than once; fill it on a device and copy it"});
  auto record = std::make_unique<HostFill>();
  record->to = from_handle<unsigned char*>(to);
  std::memcpy(record->value, value, width);
  record->width = width;
  record->count = count;
  if (Status status = host_function(stream, run_host_fill, record.get()); !status) return status;
  (void)record.release();  // run_host_fill owns it now
  return {};
}

}  // namespace stf_places::cuda
