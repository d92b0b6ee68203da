#include "core/layouts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "driver/status.hpp"

namespace stf_places {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 62;  // elements, or bytes: sums of two still fit
constexpr std::int64_t most_places = std::numeric_limits<std::int32_t>::max();
// Owners are found in chunks that stay in the L1 cache: one pass checks the bounds, others compute. Those ask
// for the coordinates of later chunks, so that memory is never idle.
constexpr std::size_t chunk_rows = 256;
constexpr std::size_t rows_ahead = 512;

enum KernelFlags { shifts = 1, wraps_around = 2, multiplies = 4, adds = 8, all_flags = 16 };

std::string text_of_tuple(const std::int64_t* values, std::size_t count) {
  std::string text = "(";
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + (count == 1 ? ",)" : ")");
}

std::string text_of_tuple(const std::vector<std::int64_t>& values) {
  return text_of_tuple(values.data(), values.size());
}

void check_axis(const LayoutAxis& axis, std::size_t number) {
  const std::string name = "axis " + std::to_string(number) + " of a layout";
  if (axis.length < 1 || axis.block < 1) {
    throw Error(ErrorKind::value, name + " has a length and blocks of 1 element or more: got length=" +
                                      std::to_string(axis.length) + ", block=" + std::to_string(axis.block));
  }
  if (axis.places.empty()) throw Error(ErrorKind::value, name + " has 1 part or more: got places=()");
}

bool is_linear(const std::vector<std::int64_t>& places) {
  if (places.size() == 1) return places[0] == 0;
  for (std::size_t p = 0; p < places.size(); ++p) {
    if (static_cast<__int128>(p) * places[1] != places[p]) return false;
  }
  return true;
}

std::int64_t checked_total(std::int64_t size, std::size_t itemsize, std::size_t page) {
  if (itemsize < 1 || page < 1) {
    throw Error(ErrorKind::value, "elements and pages have 1 byte or more: got itemsize=" +
                                      std::to_string(itemsize) + ", page=" + std::to_string(page));
  }
  if (itemsize > static_cast<std::size_t>(largest / size)) {
    throw Error(ErrorKind::value, "an array has at most 2**62 bytes: got " + std::to_string(size) +
                                      " elements of " + std::to_string(itemsize));
  }
  return size * static_cast<std::int64_t>(itemsize);
}

}  // namespace

Layout::Divider::Divider(std::int64_t divisor)
    : shift_(std::bit_width(static_cast<std::uint64_t>(divisor) - 1)) {
  const auto power = static_cast<unsigned __int128>(1) << (63 + shift_);
  magic_ = static_cast<std::uint64_t>((power + static_cast<std::uint64_t>(divisor) - 1) /
                                      static_cast<std::uint64_t>(divisor));
}

Layout::Axis::Axis(LayoutAxis given)
    : length(given.length),
      block(given.block),
      places(std::move(given.places)),
      by_block(block),
      by_parts(parts()),
      whole(parts() == 1 || block >= length),
      wraps(!whole && (length - 1) / block >= parts()),
      linear(is_linear(places)),
      shift(std::has_single_bit(static_cast<std::uint64_t>(block))
                ? std::countr_zero(static_cast<std::uint64_t>(block))
                : -1) {}

std::int64_t Layout::Axis::part(std::int64_t x) const {
  if (whole) return 0;
  const std::int64_t number = by_block(x);
  return wraps ? number - parts() * by_parts(number) : number;
}

std::int64_t Layout::Axis::count(std::int64_t part, std::int64_t x) const {
  if (whole) return part == 0 ? x : 0;
  const std::int64_t blocks = by_block(x);
  const std::int64_t rounds = by_parts(blocks);
  const std::int64_t next = blocks - rounds * parts();
  const std::int64_t last = part < next ? block : part == next ? x - blocks * block : 0;
  return rounds * block + last;
}

Layout::Layout(std::vector<LayoutAxis> axes, std::int64_t place_count) : place_count_(place_count) {
  if (axes.empty()) throw Error(ErrorKind::value, "a layout has 1 axis or more: got none");
  if (place_count < 1 || place_count > most_places) {
    throw Error(ErrorKind::value,
                "a grid has 1 to 2**31 - 1 places: got place_count=" + std::to_string(place_count));
  }
  std::vector<std::int64_t> shape;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    check_axis(axes[a], a);
    shape.push_back(axes[a].length);
    axes_.emplace_back(std::move(axes[a]));
  }
  std::int64_t row = 1;
  for (std::size_t a = axes_.size(); a-- > 0; row *= axes_[a].length) {
    axes_[a].row = row;
    if (axes_[a].length > largest / row) {
      throw Error(ErrorKind::value,
                  "an array of a layout has at most 2**62 elements: got shape " + text_of_tuple(shape));
    }
  }
  enumerate();
  elements_ = {1};
  for (std::size_t a = axes_.size(); a-- > 0;) {
    Axis& axis = axes_[a];
    axis.behind = std::move(elements_);
    elements_.clear();
    for (std::int64_t q = 0; q < axis.parts(); ++q) {
      for (const std::int64_t each : axis.behind) elements_.push_back(axis.count(q, axis.length) * each);
    }
  }
}

void Layout::enumerate() {
  choices_.assign(static_cast<std::size_t>(place_count_), -1);
  std::vector<std::int64_t> parts(axes_.size(), 0);
  while (true) {
    __int128 sum = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a) sum += axes_[a].places[parts[a]];
    if (sum < 0 || sum >= place_count_) {
      throw Error(ErrorKind::value, "the parts of all axes add up to a place from 0 to " +
                                        std::to_string(place_count_ - 1) + ": parts " + text_of_tuple(parts) +
                                        " do not");
    }
    const auto place = static_cast<std::size_t>(sum);
    if (choices_[place] >= 0) {
      throw Error(ErrorKind::value, "each choice of parts has a place of its own: parts " +
                                        text_of_tuple(parts) + " add up to place " + std::to_string(place) +
                                        ", which another choice has");
    }
    choices_[place] = static_cast<std::int64_t>(places_.size());
    places_.push_back(static_cast<std::int64_t>(place));
    std::size_t a = axes_.size();
    while (a > 0 && ++parts[a - 1] == axes_[a - 1].parts()) parts[--a] = 0;
    if (a == 0) return;
  }
}

std::int64_t Layout::size() const { return axes_[0].length * axes_[0].row; }

template <int Flags>
void Layout::contribute(const Axis& axis, const std::int64_t* __restrict coords, std::size_t step,
                        std::size_t count, std::int64_t base, std::int64_t* __restrict out) {
  const Divider by_block = axis.by_block;
  const Divider by_parts = axis.by_parts;
  const int shift = axis.shift;
  const std::int64_t parts = axis.parts();
  const std::int64_t* const table = axis.places.data();
  const std::int64_t factor = parts > 1 ? table[1] : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!(Flags & adds)) __builtin_prefetch(coords + (i + rows_ahead) * step);
    const std::int64_t x = coords[i * step];
    std::int64_t part = (Flags & shifts) ? x >> shift : by_block(x);
    if (Flags & wraps_around) part -= parts * by_parts(part);
    // Another thread may write to the coordinates after they were checked: the table is never left.
    if (!(Flags & multiplies)) part = std::min<std::uint64_t>(part, parts - 1);
    const std::int64_t place = (Flags & multiplies) ? part * factor : table[part];
    out[i] = place + ((Flags & adds) ? out[i] : base);
  }
}

Layout::Kernel Layout::kernel_of(const Axis& axis, bool add) {
  static constexpr auto kernels = []<int... Flags>(std::integer_sequence<int, Flags...>) {
    return std::array<Kernel, all_flags>{&contribute<Flags>...};
  }(std::make_integer_sequence<int, all_flags>{});
  return kernels[(axis.shift >= 0 ? shifts : 0) | (axis.wraps ? wraps_around : 0) |
                 (axis.linear ? multiplies : 0) | (add ? adds : 0)];
}

void Layout::owners(const std::int64_t* coords, std::size_t count, std::int64_t* out) const {
  struct Step {
    Kernel kernel;
    std::size_t axis;
  };
  std::vector<Step> steps;
  std::int64_t base = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].whole) {
      base += axes_[a].places[0];
    } else {
      steps.push_back({kernel_of(axes_[a], !steps.empty()), a});
    }
  }
  for (std::size_t first = 0; first < count; first += chunk_rows) {
    const std::size_t rows = std::min(chunk_rows, count - first);
    const std::int64_t* const chunk = coords + first * rank();
    if (!inside(chunk, rows)) report_outside(chunk, first);
    if (steps.empty()) std::fill_n(out + first, rows, base);
    for (const Step& step : steps) {
      step.kernel(axes_[step.axis], chunk + step.axis, rank(), rows, base, out + first);
    }
  }
}

bool Layout::inside(const std::int64_t* coords, std::size_t count) const {
  const std::size_t step = rank();
  std::uint64_t signs = 0;  // the top bit is set by a coordinate below 0 or above the last
  for (std::size_t a = 0; a < step; ++a) {
    const auto last = static_cast<std::uint64_t>(axes_[a].length) - 1;
    if (step == 1) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<std::uint64_t>(coords[i]);
        signs |= x | (last - x);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<std::uint64_t>(coords[i * step + a]);
        signs |= x | (last - x);
      }
    }
  }
  return signs >> 63 == 0;
}

void Layout::report_outside(const std::int64_t* coords, std::size_t row) const {
  while (inside(coords, 1)) {
    coords += rank();
    ++row;
  }
  std::vector<std::int64_t> shape;
  for (const Axis& axis : axes_) shape.push_back(axis.length);
  throw Error(ErrorKind::index, "coordinates " + text_of_tuple(coords, rank()) +
                                    " lie outside an array of shape " + text_of_tuple(shape) + ": row " +
                                    std::to_string(row));
}

AxisRanges Layout::ranges(std::size_t axis, std::int64_t part) const {
  if (axis >= rank()) {
    throw Error(ErrorKind::index,
                "a layout of rank " + std::to_string(rank()) + " has no axis " + std::to_string(axis));
  }
  if (part < 0 || part >= axes_[axis].parts()) {
    throw Error(ErrorKind::index, "axis " + std::to_string(axis) + " of the layout has parts 0 to " +
                                      std::to_string(axes_[axis].parts() - 1) + ": got part " +
                                      std::to_string(part));
  }
  const Axis& cut = axes_[axis];
  if (cut.count(part, cut.length) == 0) return {};
  if (cut.whole) return {0, 0, cut.length, 1, cut.length, 1};
  if (cut.block == 1 && cut.wraps) return {part, 0, cut.length - part, 1, cut.length, cut.parts()};
  const std::int64_t blocks = (cut.length - 1) / cut.block + 1;
  return {part * cut.block, cut.parts() * cut.block,
          cut.block,        (blocks - part - 1) / cut.parts() + 1,
          cut.length,       1};
}

std::vector<std::int64_t> Layout::parts_of(std::int64_t place) const {
  if (place < 0 || place >= place_count_) {
    throw Error(ErrorKind::index, "a grid of " + std::to_string(place_count_) + " place(s) has no place " +
                                      std::to_string(place));
  }
  std::int64_t choice = choices_[static_cast<std::size_t>(place)];
  if (choice < 0) return {};
  std::vector<std::int64_t> parts;
  for (const Axis& axis : axes_) {
    const auto choices = static_cast<std::int64_t>(axis.behind.size());
    parts.push_back(choice / choices);
    choice %= choices;
  }
  return parts;
}

std::vector<std::int64_t> Layout::elements() const {
  std::vector<std::int64_t> result(static_cast<std::size_t>(place_count_), 0);
  for (std::size_t c = 0; c < places_.size(); ++c)
    result[static_cast<std::size_t>(places_[c])] = elements_[c];
  return result;
}

std::int64_t Layout::choice_of(std::int64_t element) const {
  std::int64_t choice = 0;
  for (const Axis& axis : axes_) {
    choice += axis.part(element / axis.row) * static_cast<std::int64_t>(axis.behind.size());
    element %= axis.row;
  }
  return choice;
}

std::int64_t Layout::border_behind(std::int64_t element) const {
  const auto cut = std::find_if(axes_.rbegin(), axes_.rend(), [](const Axis& axis) { return !axis.whole; });
  if (cut == axes_.rend()) return size();
  const std::int64_t number = element / cut->row;
  const std::int64_t x = number % cut->length;
  const std::int64_t end = std::min(cut->length, x - x % cut->block + cut->block);
  return (number - x + end) * cut->row;
}

void Layout::bytes_below(std::int64_t nbytes, std::int64_t itemsize, std::vector<std::int64_t>& out) const {
  const std::int64_t element = nbytes / itemsize;
  out[0] = 0;
  for (std::size_t a = axes_.size(); a-- > 0;) {
    const Axis& axis = axes_[a];
    const std::int64_t number = element / axis.row;
    const std::int64_t x = a == 0 ? number : number % axis.length;
    const std::int64_t partial = axis.part(x);  // the part whose row is not below in full
    const std::size_t choices = axis.behind.size();
    // The first `choices` values are those of the axes behind; part 0 replaces them last.
    for (std::int64_t q = axis.parts(); q-- > 0;) {
      const std::int64_t rows = axis.count(q, x);
      std::int64_t* const target = out.data() + static_cast<std::size_t>(q) * choices;
      for (std::size_t c = 0; c < choices; ++c) {
        target[c] = rows * axis.behind[c] + (q == partial ? out[c] : 0);
      }
    }
  }
  for (std::int64_t& each : out) each *= itemsize;
  const std::int64_t rest = nbytes - element * itemsize;
  if (rest > 0) out[static_cast<std::size_t>(choice_of(element))] += rest;
}

template <class Visit>
void Layout::each_run(std::size_t itemsize, std::size_t page, Visit visit) const {
  const std::int64_t total = checked_total(size(), itemsize, page);
  const auto item = static_cast<std::int64_t>(itemsize);
  const auto step = static_cast<std::int64_t>(std::min(page, static_cast<std::size_t>(total)));
  std::vector<std::int64_t> below(places_.size()), above(places_.size());
  bool known = false;  // `below` is that of `start`
  std::int64_t number = 0;
  for (std::int64_t start = 0; start < total;) {
    const std::int64_t border = border_behind(start / item) * item;
    const std::int64_t pages = (border - start + (border == total ? step - 1 : 0)) / step;
    if (pages > 0) {
      visit(places_[static_cast<std::size_t>(choice_of(start / item))], number, pages, std::int64_t{0});
      number += pages;
      start += pages * step;
      known = false;
      continue;
    }
    const std::int64_t end = std::min(start + step, total);
    if (!known) bytes_below(start, item, below);
    bytes_below(end, item, above);
    std::int64_t most = 0, place = 0;
    for (std::size_t c = 0; c < places_.size(); ++c) {
      const std::int64_t nbytes = above[c] - below[c];
      if (nbytes > most || (nbytes == most && places_[c] < place)) {
        most = nbytes;
        place = places_[c];
      }
    }
    visit(place, number, std::int64_t{1}, end - start - most);
    below.swap(above);
    known = true;
    ++number;
    start = end;
  }
}

std::vector<PageRun> Layout::pages(std::size_t itemsize, std::size_t page) const {
  std::vector<PageRun> runs;
  each_run(itemsize, page, [&](std::int64_t place, std::int64_t first, std::int64_t count, std::int64_t) {
    if (runs.empty() || runs.back().place != place) {
      runs.push_back({place, first, count});
    } else {
      runs.back().count += count;
    }
  });
  return runs;
}

std::int64_t Layout::misplaced(std::size_t itemsize, std::size_t page) const {
  std::int64_t total = 0;
  each_run(itemsize, page,
           [&](std::int64_t, std::int64_t, std::int64_t, std::int64_t bytes) { total += bytes; });
  return total;
}

}  // namespace stf_places
