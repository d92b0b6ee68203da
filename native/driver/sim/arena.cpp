#include "arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace stf_places::sim {

namespace {

constexpr std::size_t chunk_size = std::size_t{16} << 30;  // address space, not memory
constexpr std::size_t page = 4096;
constexpr std::size_t large = 64 << 10;
constexpr std::size_t quarantine = 16;  // freed blocks of a size before the oldest is used again

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

std::size_t round_up(std::size_t nbytes, std::size_t to) { return (nbytes + to - 1) / to * to; }

}  // namespace

Arena::~Arena() {
  if (!backed_) return;
  for (const auto& [begin, chunk] : chunks_) munmap(pointer(begin), chunk.end - begin);
}

std::size_t Arena::block_size(std::size_t nbytes) { return round_up(nbytes, nbytes >= large ? page : 256); }

bool Arena::add_chunk(std::size_t at_least) {
  const std::size_t size = round_up(std::max(chunk_size, at_least), page);
  Address begin = next_fake_;
  if (backed_) {
    void* mapped =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    begin = reinterpret_cast<Address>(mapped);
  } else {
    next_fake_ += size;
  }
  current_ = &chunks_.emplace(begin, Chunk{begin + size, begin}).first->second;
  return true;
}

Address Arena::take(std::size_t nbytes, std::size_t wished) {
  const std::size_t size = block_size(nbytes);
  const auto freed = free_.find({size, wished});
  if (freed != free_.end() && freed->second.size() >= quarantine) {
    const Address address = freed->second.front();
    freed->second.pop_front();
    if (backed_ && size < large) std::memset(pointer(address), 0, size);
    return address;
  }
  const std::size_t alignment = std::max<std::size_t>(wished, size >= large ? page : 256);
  if (current_ == nullptr || round_up(current_->next, alignment) + size > current_->end) {
    if (!add_chunk(size + (alignment > page ? alignment : 0))) return 0;
  }
  const Address address = round_up(current_->next, alignment);
  current_->next = address + size;
  return address;
}

void Arena::give(Address address, std::size_t nbytes, std::size_t alignment) {
  const std::size_t size = block_size(nbytes);
  // The system gets the pages back at once; the next user finds zeros.
  if (backed_ && size >= large) madvise(pointer(address), size, MADV_DONTNEED);
  free_[{size, alignment}].push_back(address);
}

void Arena::discard(Address address, std::size_t nbytes) {
  if (backed_) madvise(pointer(address), nbytes, MADV_DONTNEED);
}

bool Arena::owns(Address address) const {
  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin()) return false;
  return address < std::prev(chunk)->second.end;
}

}  // namespace stf_places::sim
