// How an array is laid over places, in closed form: who owns an element, which boxes a place has, where pages
// lie.
//
// Each axis of the array is cut into blocks of equal length (the last one shorter), and block number b goes
// to part b % parts: one rule for whole axes (one block), blocked ones (as many blocks as parts) and cyclic
// ones. A part of each axis together name a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stf_places {

struct LayoutAxis {
  std::int64_t length = 0;              // elements, 1 or more
  std::int64_t block = 1;               // elements of a block, 1 or more
  std::vector<std::int64_t> places{0};  // by part: what the part adds to the place's index
};

// What a part owns of an axis: `count` ranges, number k from start + k * stride, over `length` elements but
// never beyond `stop`, every `step`-th of them.
struct AxisRanges {
  std::int64_t start = 0;
  std::int64_t stride = 0;
  std::int64_t length = 0;
  std::int64_t count = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
};

// Neighbouring pages of one owner.
struct PageRun {
  std::int64_t place = 0;
  std::int64_t first = 0;  // page number
  std::int64_t count = 0;
};

class Layout {
 public:
  // `place_count`: places of the grid, of which some may own nothing (replicas, short axes). Throws
  // Error(value) unless each choice of a part of each axis names a place of its own below `place_count`.
  Layout(std::vector<LayoutAxis> axes, std::int64_t place_count);

  std::size_t rank() const { return axes_.size(); }
  std::int64_t place_count() const { return place_count_; }
  std::int64_t size() const;  // elements

  // `coords`: `count` rows of `rank` coordinates. Throws Error(index) naming the first row outside the array;
  // `out` is then unspecified.
  void owners(const std::int64_t* coords, std::size_t count, std::int64_t* out) const;
  // What a part owns of an axis, in ascending order; one range unless blocks longer than one element go
  // around. Empty for a part beyond the last block. A place's parts: see `parts_of`.
  AxisRanges ranges(std::size_t axis, std::int64_t part) const;
  // The part of each axis that a place has, or an empty vector when it owns nothing because it is a replica.
  std::vector<std::int64_t> parts_of(std::int64_t place) const;
  // Elements that each place owns.
  std::vector<std::int64_t> elements() const;

  // Owners of the pages of the array in C order: of each page the place that owns most of its bytes, of
  // equals the lowest. Runs are as long as can be.
  std::vector<PageRun> pages(std::size_t itemsize, std::size_t page) const;
  // Bytes of pages whose owner does not own them. Both throw Error(value) for more than 2^62 bytes.
  std::int64_t misplaced(std::size_t itemsize, std::size_t page) const;

 private:
  // Exact x / divisor of any 0 <= x < 2^63 by multiplication (Granlund and Montgomery, PLDI 1994).
  class Divider {
   public:
    explicit Divider(std::int64_t divisor);
    std::int64_t operator()(std::int64_t x) const {
      const auto product = static_cast<unsigned __int128>(static_cast<std::uint64_t>(x) << 1) * magic_;
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(product >> 64) >> shift_);
    }

   private:
    int shift_;
    std::uint64_t magic_;
  };

  struct Axis {
    explicit Axis(LayoutAxis given);
    std::int64_t parts() const { return static_cast<std::int64_t>(places.size()); }
    std::int64_t part(std::int64_t x) const;
    std::int64_t count(std::int64_t part, std::int64_t x) const;  // of the part's elements, those below x

    std::int64_t length;
    std::int64_t block;
    std::vector<std::int64_t> places;
    Divider by_block;
    Divider by_parts;
    bool whole;                        // one part has all of it
    bool wraps;                        // it has more blocks than parts
    bool linear;                       // places[p] == p * places[1]
    int shift;                         // block == 1 << shift, or -1
    std::int64_t row = 1;              // elements of a row: of the axes behind this one
    std::vector<std::int64_t> behind;  // the same by choice of their parts
  };

  // Adds what an axis contributes to the owners of some rows, or sets it.
  using Kernel = void (*)(const Axis&, const std::int64_t*, std::size_t, std::size_t, std::int64_t,
                          std::int64_t*);
  template <int Flags>
  static void contribute(const Axis& axis, const std::int64_t* coords, std::size_t step, std::size_t count,
                         std::int64_t base, std::int64_t* out);
  static Kernel kernel_of(const Axis& axis, bool add);

  void enumerate();
  bool inside(const std::int64_t* coords, std::size_t count) const;
  [[noreturn]] void report_outside(const std::int64_t* coords, std::size_t row) const;
  std::int64_t choice_of(std::int64_t element) const;
  // The first element behind this one that can have another owner.
  std::int64_t border_behind(std::int64_t element) const;
  // What each choice owns of the first `nbytes` bytes.
  void bytes_below(std::int64_t nbytes, std::int64_t itemsize, std::vector<std::int64_t>& out) const;
  // Calls visit(place, first page, pages, misplaced bytes), in order.
  template <class Visit>
  void each_run(std::size_t itemsize, std::size_t page, Visit visit) const;

  // A choice of parts is numbered in C order over the axes.
  std::vector<Axis> axes_;
  std::int64_t place_count_;
  std::vector<std::int64_t> places_;    // by choice
  std::vector<std::int64_t> elements_;  // by choice
  std::vector<std::int64_t> choices_;   // by place, -1 for none
};

}  // namespace stf_places
