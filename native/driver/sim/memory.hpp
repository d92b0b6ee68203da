// Tagged memory of the simulated machine: who owns which range, and what may be done with it.
//
// A free has two moments: the call, and its turn in its stream. Pages that are mapped into a reserved range
// are allocations too, but they come and go at the call, and accesses may span neighbours of one range.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arena.hpp"
#include "machine_spec.hpp"
#include "races.hpp"

namespace stf_places::sim {

// Addresses that are reserved for pages.
struct Range {
  std::uint64_t id = 0;
  Address address = 0;
  std::size_t nbytes = 0;

  Address end() const { return address + nbytes; }
};

struct Allocation {
  std::uint64_t id = 0;
  Address address = 0;
  std::size_t nbytes = 0;
  Location where;
  Shadow shadow;
  const Range* range = nullptr;  // of pages; null: a block of its own
  std::vector<bool> reachable;   // of pages, by device

  Address end() const { return address + nbytes; }
  std::string owner() const;  // "allocation #12 on device 0", "pages of range #3 [0, 4096) on device 0"
  std::string name() const;   // "allocation #12 of 4096 bytes on device 0"; for pages the same as owner()
};

class Memory {
 public:
  Memory(const MachineSpec& spec, bool backed);

  std::size_t total(int device) const { return total_[device]; }
  std::size_t used(int device) const { return used_[device]; }
  std::size_t live() const { return live_.size() + ranges_.size(); }
  bool has_room(int device, std::size_t nbytes) const { return nbytes <= total_[device] - used_[device]; }

  Status allocate(const char* call, Location where, std::size_t nbytes, Allocation** out);
  // Checks that `[address, address + nbytes)` may be touched. `*out` is its allocation (the first, where it
  // spans pages), or null for host memory that the machine did not allocate. `expected` is where the caller
  // says that it lies; null: not said.
  Status resolve(const char* call, Address address, std::size_t nbytes, const Location* expected,
                 Allocation** out) const;
  // The allocation that starts at `address`, which must be of that kind (and device) to be freed.
  Status owned(const char* call, Address address, Location where, Allocation** out) const;

  // The call: nothing submitted later may touch it.
  void retire(Allocation* allocation);
  // The free's turn: its bytes are free again.
  void uncount(const Allocation* allocation);
  // Nobody can touch it any more: its addresses can be handed out again.
  void reclaim(Allocation* allocation);

  // -- Pages (memory_pages.cpp) --
  std::size_t page(int device) const { return page_[device]; }
  Status reserve(const char* call, std::size_t nbytes, Address* out);
  // The call: nothing can be mapped there any more. `give_back` lets the addresses be handed out again.
  Status release(const char* call, Address address, std::size_t nbytes);
  void give_back(Address address, std::size_t nbytes);
  Status can_map(const char* call, Address address, std::size_t nbytes, int device) const;
  // Pages of zeros.
  Status map(const char* call, Address address, std::size_t nbytes, int device);
  // The pieces that fill `[address, address + nbytes)`.
  Status pieces(const char* call, Address address, std::size_t nbytes, std::vector<Allocation*>* out) const;
  void unmap(Allocation* piece);
  // The pages of the same range that begin where these end; null: there are none.
  Allocation* next(const Allocation* piece) const;
  // Whether `device` was given access to all pages from `first` (null or no pages: nothing to ask) to `end`.
  Status reaches(const char* call, int device, const Allocation* first, Address end) const;

 private:
  struct Freed {
    Address end = 0;
    std::string name;
    bool pages = false;
  };

  Allocation* containing(Address address) const;
  const Freed* freed(Address address) const;
  Status refuse(const char* call, std::string detail, int device) const;
  Status no_room(const char* call, int device, std::size_t nbytes) const;
  Status unknown(const char* call, Address address, std::size_t nbytes, const Location* expected) const;
  Status resolve_span(const char* call, Address address, std::size_t nbytes, const Location* expected,
                      const Allocation* first) const;
  Status disagrees(const char* call, const Allocation& allocation, const Location& said) const;
  Status find_range(const char* call, Address address, std::size_t nbytes, const Range** out) const;
  const Range* range_at(Address address) const;
  std::size_t coarsest_page() const;
  void forget_freed(Address begin, Address end);
  void remember_freed(const Allocation& allocation);

  std::vector<std::size_t> total_;
  std::vector<std::size_t> used_;
  std::vector<std::size_t> page_;  // by device
  Arena arena_;
  std::uint64_t last_id_ = 0;
  std::map<Address, std::unique_ptr<Allocation>> live_;
  std::map<std::uint64_t, std::unique_ptr<Allocation>> retired_;  // by id
  std::map<Address, Range> ranges_;
  std::uint64_t last_range_id_ = 0;
  std::map<Address, Freed> freed_;
  std::deque<Address> freed_order_;
  mutable Allocation* last_hit_ = nullptr;
};

}  // namespace stf_places::sim
