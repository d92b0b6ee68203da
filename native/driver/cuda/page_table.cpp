#include "page_table.hpp"

#include <cstdio>
#include <iterator>
#include <utility>

#include "errors.hpp"

namespace stf_places::cuda {

namespace {

std::string address_text(Address address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string piece_text(const MappedPiece& piece) {
  return "the piece of " + bytes_text(piece.address, piece.nbytes) + " on device " +
         std::to_string(piece.device);
}

}  // namespace

std::string bytes_text(Address address, std::size_t nbytes) {
  return std::to_string(nbytes) + " bytes at " + address_text(address);
}

// The range that the address lies in, or the end.
PageTable::Ranges::const_iterator PageTable::range_of(Address address) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return ranges_.end();
  auto found = std::prev(after);
  return address - found->first < found->second ? found : ranges_.end();
}

PageTable::Pieces::const_iterator PageTable::piece_of(Address address) const {
  auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return pieces_.end();
  auto found = std::prev(after);
  return address < found->second.end() ? found : pieces_.end();
}

void PageTable::add_range(Address address, std::size_t nbytes) {
  std::scoped_lock lock(mutex_);
  ranges_[address] = nbytes;
}

Status PageTable::take_range(const char* call, Address address, std::size_t nbytes) {
  std::scoped_lock lock(mutex_);
  const std::string given = ": got " + bytes_text(address, nbytes);
  auto range = range_of(address);
  if (range == ranges_.end())
    return refused(call, "addresses are released that reserve_pages gave" + given + ", where none are");
  if (range->first != address || range->second != nbytes)
    return refused(call, "a range of addresses is released as a whole" + given + "; the range is " +
                             bytes_text(range->first, range->second));
  auto piece = pieces_.lower_bound(address);
  if (piece != pieces_.end() && piece->first - address < nbytes)
    return refused(call, "addresses are released once nothing is mapped there" + given + ", with " +
                             piece_text(piece->second) + "; unmap_pages comes first");
  ranges_.erase(range);
  return {};
}

Status PageTable::add(const char* call, const MappedPiece& piece) {
  std::scoped_lock lock(mutex_);
  const std::string given = ": got " + bytes_text(piece.address, piece.nbytes);
  auto range = range_of(piece.address);
  if (range == ranges_.end())
    return refused(call,
                   "memory is mapped at addresses that reserve_pages gave" + given + ", where none are");
  if (piece.nbytes > range->second - (piece.address - range->first))
    return refused(call, "a piece lies within one range of addresses" + given + "; the range is " +
                             bytes_text(range->first, range->second));
  auto other = piece_of(piece.address);
  if (other == pieces_.end()) other = pieces_.lower_bound(piece.address);
  if (other != pieces_.end() && other->first < piece.end())
    return refused(call, "memory is mapped where nothing is mapped yet" + given + ", with " +
                             piece_text(other->second) + "; unmap_pages makes room");
  pieces_[piece.address] = piece;
  size_.store(pieces_.size(), std::memory_order_release);
  return {};
}

// Called with the lock held.
Status PageTable::check_whole(const char* call, Address address, std::size_t nbytes) const {
  const std::string given = "whole pieces, all of them mapped: got " + bytes_text(address, nbytes);
  auto range = range_of(address);
  if (range == ranges_.end()) return refused(call, given + ", which reserve_pages did not give");
  if (nbytes == 0 || nbytes > range->second - (address - range->first))
    return refused(call,
                   given + "; they lie within one range, here " + bytes_text(range->first, range->second));
  auto piece = piece_of(address);
  if (piece != pieces_.end() && piece->first != address)
    return refused(call, given + ", which begins within " + piece_text(piece->second));
  Address at = address;
  for (piece = pieces_.lower_bound(address); at < address + nbytes; ++piece) {
    if (piece == pieces_.end() || piece->first != at)
      return refused(call,
                     given + ", but nothing is mapped at " + address_text(at) + "; map_pages comes first");
    at = piece->second.end();
    if (at > address + nbytes)
      return refused(call, given + ", which ends within " + piece_text(piece->second));
  }
  return {};
}

Status PageTable::take(const char* call, Address address, std::size_t nbytes, std::vector<MappedPiece>* out) {
  std::scoped_lock lock(mutex_);
  if (Status status = check_whole(call, address, nbytes); !status) return status;
  std::vector<MappedPiece> taken;
  auto first = pieces_.find(address), last = pieces_.lower_bound(address + nbytes);
  for (auto piece = first; piece != last; ++piece) taken.push_back(std::move(piece->second));
  pieces_.erase(first, last);
  size_.store(pieces_.size(), std::memory_order_release);
  *out = std::move(taken);
  return {};
}

void PageTable::put_back(std::vector<MappedPiece> pieces) {
  std::scoped_lock lock(mutex_);
  for (MappedPiece& piece : pieces) pieces_[piece.address] = std::move(piece);
  size_.store(pieces_.size(), std::memory_order_release);
}

Status PageTable::owners(const char* call, Address address, std::size_t nbytes, std::set<int>* out) const {
  std::scoped_lock lock(mutex_);
  if (Status status = check_whole(call, address, nbytes); !status) return status;
  std::set<int> found;
  for (auto piece = pieces_.find(address); piece != pieces_.lower_bound(address + nbytes); ++piece)
    found.insert(piece->second.device);
  *out = std::move(found);
  return {};
}

void PageTable::grant(Address address, std::size_t nbytes, const std::set<int>& devices) {
  std::scoped_lock lock(mutex_);
  auto last = pieces_.lower_bound(address + nbytes);
  for (auto piece = pieces_.lower_bound(address); piece != last; ++piece)
    piece->second.granted.insert(devices.begin(), devices.end());
}

std::optional<bool> PageTable::granted(Address address, int device) const {
  if (size_.load(std::memory_order_acquire) == 0) return {};
  std::scoped_lock lock(mutex_);
  auto piece = piece_of(address);
  if (piece == pieces_.end()) return {};
  return piece->second.granted.contains(device);
}

}  // namespace stf_places::cuda
