// Tagged memory of the simulated machine: who owns which range, and what may be done with it.
//
// A free has two moments: the call, and its turn in its stream.
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

struct Allocation {
  std::uint64_t id = 0;
  Address address = 0;
  std::size_t nbytes = 0;
  Location where;
  Shadow shadow;

  Address end() const { return address + nbytes; }
  std::string owner() const;  // "allocation #12 on device 0"
  std::string name() const;   // "allocation #12 of 4096 bytes on device 0"
};

class Memory {
 public:
  Memory(const MachineSpec& spec, bool backed);

  std::size_t total(int device) const { return total_[device]; }
  std::size_t used(int device) const { return used_[device]; }
  std::size_t live() const { return live_.size(); }
  bool has_room(int device, std::size_t nbytes) const { return nbytes <= total_[device] - used_[device]; }

  Status allocate(const char* call, Location where, std::size_t nbytes, Allocation** out);
  // Checks that `[address, address + nbytes)` may be touched. `*out` is its allocation, or null for host
  // memory that the machine did not allocate. `expected` is where the caller says that it lies; null: not
  // said.
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

 private:
  struct Freed {
    Address end = 0;
    std::string name;
  };

  Allocation* containing(Address address) const;
  const Freed* freed(Address address) const;
  Status refuse(const char* call, std::string detail, int device) const;
  Status unknown(const char* call, Address address, std::size_t nbytes, const Location* expected) const;
  void forget_freed(Address begin, Address end);
  void remember_freed(const Allocation& allocation);

  std::vector<std::size_t> total_;
  std::vector<std::size_t> used_;
  Arena arena_;
  std::uint64_t last_id_ = 0;
  std::map<Address, std::unique_ptr<Allocation>> live_;
  std::map<std::uint64_t, std::unique_ptr<Allocation>> retired_;  // by id
  std::map<Address, Freed> freed_;
  std::deque<Address> freed_order_;
  mutable Allocation* last_hit_ = nullptr;
};

}  // namespace stf_places::sim
