// What CudaDriver has reserved and mapped: ranges of addresses, and the pieces of memory within them.
//
// libcuda answers a bare "invalid value" to a part of a piece, to a gap and to an overlap, and it does not
// say on which device an address lies or who may reach it. This table does.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "../driver.hpp"

namespace stf_places::cuda {

struct MappedPiece {
  Address address = 0;
  std::size_t nbytes = 0;
  int device = -1;        // that has the memory
  std::set<int> granted;  // devices that reach it

  Address end() const noexcept { return address + nbytes; }
};

// Entries go in before libcuda is asked and come out again when it refuses (and the reverse for removals), so
// that two threads never work on the same addresses. `call` names the operation in a Failure.
class PageTable {
 public:
  void add_range(Address address, std::size_t nbytes);
  // A whole range, with nothing mapped in it.
  Status take_range(const char* call, Address address, std::size_t nbytes);

  // Within one range, over no other piece.
  Status add(const char* call, const MappedPiece& piece);
  // Whole pieces of one range without a gap, which cover the bytes given.
  Status take(const char* call, Address address, std::size_t nbytes, std::vector<MappedPiece>* out);
  void put_back(std::vector<MappedPiece> pieces);
  // The devices that have the memory of such pieces.
  Status owners(const char* call, Address address, std::size_t nbytes, std::set<int>* out) const;
  void grant(Address address, std::size_t nbytes, const std::set<int>& devices);

  // Whether `device` was granted access to what is mapped at an address; empty when nothing is.
  std::optional<bool> granted(Address address, int device) const;

 private:
  using Ranges = std::map<Address, std::size_t>;
  using Pieces = std::map<Address, MappedPiece>;

  Ranges::const_iterator range_of(Address address) const;
  Pieces::const_iterator piece_of(Address address) const;
  Status check_whole(const char* call, Address address, std::size_t nbytes) const;

  std::atomic<std::size_t> size_{0};  // of pieces, so that programs without any take no lock
  mutable std::mutex mutex_;          // never held during a driver call
  Ranges ranges_;
  Pieces pieces_;
};

// "4096 bytes at 0x7f0000000000"
std::string bytes_text(Address address, std::size_t nbytes);

}  // namespace stf_places::cuda
