// Address space for simulated memory: real host memory that costs nothing until it is touched, or, for a
// machine that does not execute, addresses without memory.
//
// Freed addresses stay ours (no user buffer can appear there), and a block is handed out again only after a
// few others of its size, so that a use after free is nearly always told from a use of the next allocation.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "../driver.hpp"

namespace stf_places::sim {

class Arena {
 public:
  explicit Arena(bool backed) : backed_(backed) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed, aligned to 256 bytes (pages from 64 KiB on) or to `alignment` where that is more; 0 when the
  // system has no address space left.
  Address take(std::size_t nbytes, std::size_t alignment = 0);
  // `alignment` as it was taken with.
  void give(Address address, std::size_t nbytes, std::size_t alignment = 0);
  // Makes whole 4 KiB pages of a taken block zeros again, which then cost no memory.
  void discard(Address address, std::size_t nbytes);
  // Whether the address lies in a chunk of this arena, allocated or not.
  bool owns(Address address) const;
  // The bytes that a block of `nbytes` occupies.
  static std::size_t block_size(std::size_t nbytes);

 private:
  struct Chunk {
    Address end = 0;
    Address next = 0;  // never handed out from here on
  };

  bool add_chunk(std::size_t at_least);

  bool backed_;
  std::map<Address, Chunk> chunks_;  // by first address
  Chunk* current_ = nullptr;
  Address next_fake_ = Address{1} << 56;  // above every user address
  // By block size and alignment, oldest first.
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Address>> free_;
};

}  // namespace stf_places::sim
