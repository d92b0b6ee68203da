// Layouts against brute force over small arrays, and the closed forms at sizes that no loop could cover.
#include "core/layouts.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "check.hpp"

using namespace stf_places;

namespace {

using Numbers = std::vector<std::int64_t>;

struct Case {
  std::vector<LayoutAxis> axes;
  std::int64_t place_count = 1;
  Layout layout() const { return Layout(axes, place_count); }
};

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }

  // Places of a grid in C order, its axes in any order, sometimes reversed, shuffled, or with replicas
  // between.
  Case layout() {
    Case made;
    const auto rank = static_cast<std::size_t>(number(1, 4));
    Numbers order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine_);
    made.axes.resize(rank);
    std::int64_t stride = number(1, 4) == 1 ? 2 : 1;
    for (const std::int64_t a : order) {
      LayoutAxis& axis = made.axes[static_cast<std::size_t>(a)];
      axis.length = number(1, rank == 1 ? 60 : 9);
      axis.block = number(1, 4) == 1 ? axis.length + number(0, 3) : number(1, 4);
      axis.places.clear();
      const std::int64_t parts = number(1, 4);
      for (std::int64_t p = 0; p < parts; ++p) axis.places.push_back(p * stride);
      if (number(1, 3) == 1) std::shuffle(axis.places.begin(), axis.places.end(), engine_);
      stride *= parts;
    }
    made.place_count = stride;
    return made;
  }

 private:
  std::mt19937 engine_;
};

std::int64_t part_of(const LayoutAxis& axis, std::int64_t x) {
  return x / axis.block % static_cast<std::int64_t>(axis.places.size());
}

std::int64_t size_of(const Case& one) {
  std::int64_t size = 1;
  for (const LayoutAxis& axis : one.axes) size *= axis.length;
  return size;
}

// Coordinates of every element, in C order.
Numbers all_coordinates(const Case& one) {
  const std::size_t rank = one.axes.size();
  Numbers coords;
  for (std::int64_t e = 0; e < size_of(one); ++e) {
    coords.resize(coords.size() + rank);
    std::int64_t rest = e;
    for (std::size_t a = rank; a-- > 0;) {
      coords[coords.size() - rank + a] = rest % one.axes[a].length;
      rest /= one.axes[a].length;
    }
  }
  return coords;
}

Numbers all_owners(const Case& one) {
  const Numbers coords = all_coordinates(one);
  Numbers owners(static_cast<std::size_t>(size_of(one)), 0);
  for (std::size_t i = 0; i < coords.size(); ++i) {
    const LayoutAxis& axis = one.axes[i % one.axes.size()];
    owners[i / one.axes.size()] += axis.places[static_cast<std::size_t>(part_of(axis, coords[i]))];
  }
  return owners;
}

template <class Call>
void check_throws(ErrorKind kind, const std::string& text, Call call) {
  try {
    call();
    check::fail("check_throws", 0, "nothing was thrown, expected: " + text);
  } catch (const Error& error) {
    CHECK(error.kind == kind);
    CHECK_EQUAL(std::string(error.what()), text);
  }
}

void check_ranges(const Case& one) {
  const Layout layout = one.layout();
  for (std::size_t a = 0; a < one.axes.size(); ++a) {
    const LayoutAxis& axis = one.axes[a];
    std::int64_t seen = 0;
    for (std::int64_t q = 0; q < static_cast<std::int64_t>(axis.places.size()); ++q) {
      std::int64_t last = -1;
      const AxisRanges ranges = layout.ranges(a, q);
      for (std::int64_t k = 0; k < ranges.count; ++k) {
        const std::int64_t start = ranges.start + k * ranges.stride;
        const std::int64_t stop = std::min(start + ranges.length, ranges.stop);
        CHECK(start < stop && stop <= axis.length);
        for (std::int64_t x = start; x < stop; x += ranges.step) {
          CHECK_EQUAL(part_of(axis, x), q);
          CHECK(x > last);
          last = x;
          ++seen;
        }
      }
      const auto parts = static_cast<std::int64_t>(axis.places.size());
      if (axis.block == 1 || axis.length <= axis.block * parts) CHECK(ranges.count <= 1);
    }
    CHECK_EQUAL(seen, axis.length);
  }
}

void check_pages(const Case& one, std::int64_t itemsize, std::int64_t page) {
  const Numbers owners = all_owners(one);
  const std::int64_t total = size_of(one) * itemsize;
  Numbers expected;
  std::int64_t misplaced = 0;
  for (std::int64_t start = 0; start < total; start += page) {
    Numbers bytes(static_cast<std::size_t>(one.place_count), 0);
    const std::int64_t end = std::min(start + page, total);
    for (std::int64_t b = start; b < end; ++b) ++bytes[static_cast<std::size_t>(owners[b / itemsize])];
    const auto most = std::max_element(bytes.begin(), bytes.end());  // the first of equals
    expected.push_back(most - bytes.begin());
    misplaced += end - start - *most;
  }
  const Layout layout = one.layout();
  CHECK_EQUAL(layout.misplaced(itemsize, page), misplaced);
  Numbers seen;
  std::int64_t before = -1;
  for (const PageRun& run : layout.pages(itemsize, page)) {
    CHECK_EQUAL(run.first, static_cast<std::int64_t>(seen.size()));
    CHECK(run.count > 0 && run.place != before);
    before = run.place;
    seen.insert(seen.end(), static_cast<std::size_t>(run.count), run.place);
  }
  CHECK(seen == expected);
}

constexpr std::int64_t large = std::int64_t{1} << 62;

}  // namespace

TEST(owners_are_those_of_brute_force) {
  Draw draw(1);
  for (int i = 0; i < 2000; ++i) {
    const Case one = draw.layout();
    const Numbers coords = all_coordinates(one);
    Numbers owners(static_cast<std::size_t>(size_of(one)), -1);
    one.layout().owners(coords.data(), owners.size(), owners.data());
    CHECK(owners == all_owners(one));
  }
}

TEST(elements_and_parts_are_those_of_brute_force) {
  Draw draw(2);
  for (int i = 0; i < 2000; ++i) {
    const Case one = draw.layout();
    const Layout layout = one.layout();
    Numbers expected(static_cast<std::size_t>(one.place_count), 0);
    for (const std::int64_t owner : all_owners(one)) ++expected[static_cast<std::size_t>(owner)];
    CHECK(layout.elements() == expected);
    for (std::int64_t place = 0; place < one.place_count; ++place) {
      const Numbers parts = layout.parts_of(place);
      if (parts.empty()) {
        CHECK_EQUAL(expected[static_cast<std::size_t>(place)], 0);
        continue;
      }
      std::int64_t sum = 0;
      for (std::size_t a = 0; a < parts.size(); ++a)
        sum += one.axes[a].places[static_cast<std::size_t>(parts[a])];
      CHECK_EQUAL(sum, place);
    }
  }
}

TEST(ranges_tile_each_axis) {
  Draw draw(3);
  for (int i = 0; i < 2000; ++i) check_ranges(draw.layout());
}

TEST(pages_and_misplaced_bytes_are_those_of_brute_force) {
  Draw draw(4);
  for (int i = 0; i < 4000; ++i) check_pages(draw.layout(), draw.number(1, 16), draw.number(1, 64));
}

TEST(a_page_longer_than_the_array_holds_all_of_it) {
  const Case one{{{10, 3, {0, 1}}}, 2};
  check_pages(one, 3, 1000);
  CHECK_EQUAL(one.layout().pages(3, static_cast<std::size_t>(-1)).size(), std::size_t{1});
}

TEST(division_is_exact_at_the_ends) {
  Draw draw(5);
  const std::int64_t greatest = (large - 1) * 2 + 1;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t high = std::int64_t{1} << draw.number(0, 62);
    const std::int64_t block = std::max<std::int64_t>(1, draw.number(high / 2, high) + draw.number(-1, 1));
    const std::int64_t parts = draw.number(1, 7);
    Numbers places(static_cast<std::size_t>(parts));
    std::iota(places.begin(), places.end(), 0);
    const std::int64_t length = i % 2 == 0 ? large : draw.number(1, std::int64_t{1} << draw.number(0, 61));
    const Layout layout({{length, block, places}}, parts);
    Numbers coords{0, length - 1};
    for (int j = 0; j < 8; ++j) {
      const std::int64_t border = draw.number(1, (length - 1) / block + 1) * block;
      for (const std::int64_t x : {border - 1, border}) {
        if (x < length) coords.push_back(x);
      }
    }
    Numbers owners(coords.size());
    layout.owners(coords.data(), coords.size(), owners.data());
    for (std::size_t j = 0; j < coords.size(); ++j) CHECK_EQUAL(owners[j], coords[j] / block % parts);
  }
  const Layout whole({{large, greatest, {0, 1}}}, 2);
  CHECK_EQUAL(whole.elements()[0], large);
}

TEST(the_first_row_outside_is_named) {
  const Layout layout({{4, 2, {0, 1}}, {8, 8, {0}}}, 2);
  const auto row_of = [&](std::size_t row, std::int64_t x, std::int64_t y) {
    Numbers coords(2 * 5000, 0);
    coords[2 * row] = x;
    coords[2 * row + 1] = y;
    coords[2 * 4990] = 99;
    Numbers out(5000);
    layout.owners(coords.data(), out.size(), out.data());
  };
  const auto outside = [&](const std::string& coords, std::size_t row) {
    return "coordinates " + coords + " lie outside an array of shape (4, 8): row " + std::to_string(row);
  };
  check_throws(ErrorKind::index, outside("(5, 9)", 17), [&] { row_of(17, 5, 9); });
  check_throws(ErrorKind::index, outside("(0, 8)", 3000), [&] { row_of(3000, 0, 8); });
  check_throws(ErrorKind::index, outside("(-1, 0)", 0), [&] { row_of(0, -1, 0); });
  check_throws(ErrorKind::index, outside("(0, -9223372036854775808)", 1024),
               [&] { row_of(1024, 0, -2 * large); });
  const Layout line({{4, 1, {0, 1}}}, 2);
  check_throws(ErrorKind::index, "coordinates (4,) lie outside an array of shape (4,): row 1", [&] {
    const Numbers coords{3, 4};
    Numbers out(2);
    line.owners(coords.data(), 2, out.data());
  });
}

TEST(sizes_up_to_2_to_the_62_bytes_work) {
  const Layout rows({{large / 1024, large / 8192, {0, 1, 2, 3, 4, 5, 6, 7}}, {128, 128, {0}}}, 8);
  const auto runs = rows.pages(8, std::size_t{1} << 21);
  CHECK_EQUAL(runs.size(), std::size_t{8});
  CHECK_EQUAL(runs[7].first + runs[7].count, large >> 21);
  CHECK_EQUAL(rows.misplaced(8, std::size_t{1} << 21), 0);
  const Layout columns({{8, 8, {0}}, {large / 8, large / 8 / 3, {0, 1, 2}}}, 3);
  CHECK_EQUAL(columns.misplaced(1, static_cast<std::size_t>(large)), large - columns.elements()[0]);
  check_throws(ErrorKind::value, "an array has at most 2**62 bytes: got 4611686018427387904 elements of 2",
               [&] { (void)columns.pages(2, 4096); });
  check_throws(ErrorKind::value,
               "an array of a layout has at most 2**62 elements: got shape (3, 4611686018427387904)",
               [] { Layout({{3, 1, {0}}, {large, 1, {0}}}, 1); });
}

TEST(layouts_that_make_no_sense_are_refused) {
  const auto refused = [](const std::string& text, std::vector<LayoutAxis> axes, std::int64_t places) {
    check_throws(ErrorKind::value, text, [&] { Layout(axes, places); });
  };
  const std::string bounds = " of a layout has a length and blocks of 1 element or more: got length=";
  refused("a layout has 1 axis or more: got none", {}, 1);
  refused("a grid has 1 to 2**31 - 1 places: got place_count=0", {{4, 1, {0}}}, 0);
  refused("axis 0" + bounds + "0, block=1", {{0, 1, {0}}}, 1);
  refused("axis 1" + bounds + "4, block=0", {{4, 1, {0}}, {4, 0, {0}}}, 1);
  refused("axis 0 of a layout has 1 part or more: got places=()", {{4, 1, {}}}, 1);
  refused("the parts of all axes add up to a place from 0 to 1: parts (2,) do not", {{4, 1, {0, 1, 2}}}, 2);
  refused("the parts of all axes add up to a place from 0 to 1: parts (0,) do not", {{4, 1, {-1, 0}}}, 2);
  refused(
      "each choice of parts has a place of its own: parts (1, 0) add up to place 1, which another choice has",
      {{4, 1, {0, 1}}, {4, 1, {0, 1}}}, 4);
}

TEST(parts_and_places_that_do_not_exist_are_refused) {
  const Layout layout({{4, 2, {0, 2}}}, 4);
  CHECK(layout.parts_of(1).empty());
  check_throws(ErrorKind::index, "a grid of 4 place(s) has no place 4", [&] { (void)layout.parts_of(4); });
  check_throws(ErrorKind::index, "a grid of 4 place(s) has no place -1", [&] { (void)layout.parts_of(-1); });
  check_throws(ErrorKind::index, "axis 0 of the layout has parts 0 to 1: got part 2",
               [&] { (void)layout.ranges(0, 2); });
  check_throws(ErrorKind::index, "a layout of rank 1 has no axis 1", [&] { (void)layout.ranges(1, 0); });
  check_throws(ErrorKind::value, "elements and pages have 1 byte or more: got itemsize=0, page=1",
               [&] { (void)layout.pages(0, 1); });
}

int main() { return check::run_all(); }
