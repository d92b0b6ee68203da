// A vector of trivially copyable elements whose first N need no allocation: tasks are made by the million.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

namespace stf_places {

template <class T, std::size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void push_back(const T& value) {
    if (size_ < N) {
      local_[size_++] = value;
      return;
    }
    if (size_ == N) heap_.assign(local_, local_ + N);
    heap_.push_back(value);
    ++size_;
  }
  void reserve(std::size_t count) {
    if (count > N) heap_.reserve(count);
  }
  void clear() {
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
