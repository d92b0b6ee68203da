// A vector whose first N elements need no allocation: tasks are made by the million.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

namespace stf_places {

template <class T, std::size_t N>
class SmallVector {
 public:
  // `value` is none of its own elements.
  void push_back(const T& value) {
    if (size_ < N) {
      local_[size_++] = value;
      return;
    }
    if (size_ == N) {
      heap_.reserve(2 * N);
      heap_.assign(std::make_move_iterator(local_), std::make_move_iterator(local_ + N));
    }
    heap_.push_back(value);
    ++size_;
  }
  void reserve(std::size_t count) {
    if (count > N) heap_.reserve(count);
  }
  // The elements become copies of these, which are none of its own either.
  void assign(std::span<const T> values) {
    clear();
    for (const T& value : values) push_back(value);
  }
  void clear() {
    if constexpr (!std::is_trivially_copyable_v<T>) std::fill_n(local_, std::min(size_, N), T());
    size_ = 0;
    heap_.clear();
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return size_ > N ? heap_.data() : local_; }
  const T* data() const { return size_ > N ? heap_.data() : local_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }

 private:
  std::size_t size_ = 0;
  T local_[N] = {};
  std::vector<T> heap_;
};

}  // namespace stf_places
