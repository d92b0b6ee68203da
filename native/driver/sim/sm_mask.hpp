// A set of a device's SMs, as bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stf_places::sim {

// All masks that meet in one call are of one device, hence of one size.
class SmMask {
 public:
  SmMask() = default;
  explicit SmMask(int sm_count) : words_((sm_count + 63) / 64, 0) {}
  SmMask(int sm_count, std::span<const int> ids) : SmMask(sm_count) {
    for (const int id : ids) words_[id / 64] |= bit(id);
  }
  static SmMask first(int count) {
    SmMask mask(count);
    for (int id = 0; id < count; ++id) mask.words_[id / 64] |= bit(id);
    return mask;
  }

  void clear() { words_.assign(words_.size(), 0); }
  void add(const SmMask& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool within(const SmMask& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    }
    return true;
  }

  // Moves the `count` lowest of these SMs that are allowed and not reserved to `taken`; false, with nothing
  // changed, when there are fewer.
  bool take(int count, const SmMask& allowed, const SmMask& reserved, SmMask* taken) {
    int found = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      found += std::popcount(words_[i] & allowed.words_[i] & ~reserved.words_[i]);
    }
    if (found < count) return false;
    taken->words_.assign(words_.size(), 0);
    for (std::size_t i = 0; i < words_.size() && count > 0; ++i) {
      const std::uint64_t chosen = lowest(words_[i] & allowed.words_[i] & ~reserved.words_[i], count);
      taken->words_[i] = chosen;
      words_[i] ^= chosen;
      count -= std::popcount(chosen);
    }
    return true;
  }

 private:
  static constexpr std::uint64_t bit(int id) { return std::uint64_t{1} << (id % 64); }
  static std::uint64_t lowest(std::uint64_t word, int count) {
    if (std::popcount(word) <= count) return word;
    std::uint64_t rest = word;
    while (count-- > 0) rest &= rest - 1;
    return word ^ rest;
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace stf_places::sim
