// Memory that is mapped piece by piece into reserved addresses. None of these calls needs a current context.
#include <algorithm>
#include <string>
#include <vector>

#include "cuda_driver.hpp"

namespace stf_places::cuda {

namespace {

CUmemAllocationProp memory_of(CUdevice device) {
  CUmemAllocationProp props{};
  props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  return props;
}

std::string list_text(const std::set<int>& devices) {
  std::string text = devices.size() == 1 ? "device" : "devices";
  for (int device : devices) text += (device == *devices.begin() ? " " : ", ") + std::to_string(device);
  return text;
}

}  // namespace

// The smallest that the driver takes; the recommended one can be coarser, and so would be the borders between
// the devices' parts of an array.
Status CudaDriver::page_granularity(int device, std::size_t* out) {
  if (Status status = devices_.check_pages(device); !status) return status;
  CUmemAllocationProp props = memory_of(devices_.handle(device));
  std::size_t found = 0;
  Status status = api_.MemGetAllocationGranularity(&found, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (!status) return explained(std::move(status), "pages of device " + std::to_string(device), device);
  *out = found;
  return {};
}

// Ranges are made before it is known whose memory comes there: aligned for every device.
Status CudaDriver::coarsest_granularity(std::size_t* out) {
  Status last = devices_.check_pages(0);
  std::size_t coarsest = 0;
  for (int device = 0; device < devices_.count(); ++device) {
    std::size_t here = 0;
    Status status = page_granularity(device, &here);
    if (status.is(Code::not_supported))
      last = std::move(status);
    else if (!status)
      return status;
    coarsest = std::max(coarsest, here);
  }
  if (coarsest == 0) return last;
  *out = coarsest;
  return {};
}

Status CudaDriver::reserve_pages(std::size_t nbytes, Address* out) {
  std::size_t page = 0;
  if (Status status = coarsest_granularity(&page); !status) return status;
  if (nbytes == 0 || nbytes % page != 0)
    return refused(api_.MemAddressReserve.name(),
                   "addresses are reserved in multiples of " + std::to_string(page) +
                       " bytes, 1 or more of them: got " + std::to_string(nbytes));
  CUdeviceptr address = 0;
  Status status = api_.MemAddressReserve(&address, nbytes, page, 0, 0);
  if (!status)
    return explained(std::move(status), "asked for " + std::to_string(nbytes) + " bytes of addresses");
  pages_.add_range(address, nbytes);
  *out = address;
  return {};
}

Status CudaDriver::release_pages(Address address, std::size_t nbytes) {
  const auto& release = api_.MemAddressFree;
  if (Status status = release.available(); !status) return status;
  if (Status status = pages_.take_range(release.name(), address, nbytes); !status) return status;
  Status status = release(address, nbytes);
  if (!status) {
    pages_.add_range(address, nbytes);
    return explained(std::move(status), "releasing " + bytes_text(address, nbytes));
  }
  return {};
}

Status CudaDriver::map_pages(Address address, std::size_t nbytes, int device) {
  std::size_t page = 0;
  if (Status status = page_granularity(device, &page); !status) return status;
  if (nbytes == 0 || nbytes % page != 0 || address % page != 0)
    return refused(api_.MemMap.name(), "addresses and sizes of device " + std::to_string(device) +
                                           "'s pages are multiples of " + std::to_string(page) +
                                           " bytes: got " + bytes_text(address, nbytes));
  if (Status status = pages_.add(api_.MemMap.name(), {address, nbytes, device, {}}); !status) return status;
  Status status = map_memory(address, nbytes, device);
  std::vector<MappedPiece> given_up;
  if (!status) pages_.take(api_.MemMap.name(), address, nbytes, &given_up).ignore();
  return status;
}

Status CudaDriver::map_memory(Address address, std::size_t nbytes, int device) {
  CUmemAllocationProp props = memory_of(devices_.handle(device));
  CUmemGenericAllocationHandle memory = 0;
  if (Status status = api_.MemCreate(&memory, nbytes, &props, 0); !status)
    return out_of_memory(std::move(status), device, nbytes);
  Status mapped = api_.MemMap(address, nbytes, 0, memory, 0);
  // From here on the mapping alone keeps the memory; where there is none, this gives it back.
  Status released = api_.MemRelease(memory);
  if (!mapped) return out_of_memory(std::move(mapped), device, nbytes);
  if (!released) api_.MemUnmap(address, nbytes).ignore();
  return released;
}

Status CudaDriver::unmap_pages(Address address, std::size_t nbytes) {
  const auto& unmap = api_.MemUnmap;
  if (Status status = unmap.available(); !status) return status;
  std::vector<MappedPiece> pieces;
  if (Status status = pages_.take(unmap.name(), address, nbytes, &pieces); !status) return status;
  Status status = unmap(address, nbytes);
  if (!status) {
    pages_.put_back(std::move(pieces));
    return explained(std::move(status), "unmapping " + bytes_text(address, nbytes));
  }
  return {};
}

// Whether `device` can be let reach memory of `owner`.
Status CudaDriver::check_grant(int device, int owner) {
  bool possible = false;
  if (Status status = devices_.can_reach(device, owner, &possible); !status) return status;
  if (possible) return {};
  return Status(Failure{Code::not_supported, 0, api_.DeviceCanAccessPeer.name(), "",
                        "device " + std::to_string(device) + " cannot reach the memory of device " +
                            std::to_string(owner) +
                            ": pages that several devices use lie on devices that reach each other; copies "
                            "of memory that one device has still work",
                        device});
}

Status CudaDriver::grant_access(Address address, std::size_t nbytes, std::span<const int> devices) {
  const auto& set_access = api_.MemSetAccess;
  if (Status status = set_access.available(); !status) return status;
  std::set<int> owners;
  if (Status status = pages_.owners(set_access.name(), address, nbytes, &owners); !status) return status;
  const std::set<int> granted(devices.begin(), devices.end());
  std::vector<CUmemAccessDesc> access;
  for (int device : granted) {
    if (Status status = devices_.check_pages(device); !status) return status;
    for (int owner : owners)
      if (Status status = check_grant(device, owner); !status) return status;
    CUmemAccessDesc& one = access.emplace_back();
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = devices_.handle(device);
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  if (access.empty()) return {};
  // Access is set in the address spaces of contexts, so those have to be there.
  owners.insert(granted.begin(), granted.end());
  for (int device : owners) {
    CUcontext context = nullptr;
    if (Status status = devices_.primary(device, &context); !status) return status;
  }
  // One call for all: no slower than one a piece (measured on an H200), and a failure concerns the whole.
  Status status = set_access(address, nbytes, access.data(), access.size());
  if (!status)
    return explained(std::move(status),
                     "access of " + list_text(granted) + " to " + bytes_text(address, nbytes));
  pages_.grant(address, nbytes, granted);
  return {};
}

}  // namespace stf_places::cuda
