// Page-mapped memory: ranges, pieces, access rights, accesses over several pieces, and their races.
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

constexpr std::size_t page = 4096;  // of the tiny machine

// Two streams of device 0 and 1 over a range of a page of each; the host has waited for everything so far.
struct Shared {
  Bench machine;
  StreamHandle a = machine.stream(0);
  StreamHandle b = machine.stream(1);
  Pages pages{machine, 2 * page};

  explicit Shared(const Options& options = {}) : machine(tiny(), options) { pages.alternate(page); }
  std::size_t found() const { return machine->conflicts().size(); }
  // Work of a part of a whole: it uses `used` of the range's bytes.
  void part(StreamHandle stream, std::string_view symbol, std::uint64_t whole, std::size_t used,
            bool write = true) const {
    const Access access{pages.address, 2 * page, write, used};
    CHECK_OK(
        machine->host_work(stream, nullptr, nullptr, nullptr, Work{symbol, 1, 1, 1, {&access, 1}, whole}));
  }
};

}  // namespace

TEST(a_range_holds_pieces_of_several_devices) {
  const Bench machine;
  const StreamHandle s0 = machine.stream(0);
  const StreamHandle s1 = machine.stream(1);
  std::size_t granularity = 0;
  CHECK_OK(machine->page_granularity(1, &granularity));
  CHECK_EQUAL(granularity, page);
  const Pages pages(machine, 4 * page);
  CHECK_EQUAL(pages.address % page, Address{0});
  CHECK_EQUAL(machine->used_memory(0), std::size_t{0});
  CHECK_OK(pages.map(0, page, 0));
  CHECK_OK(pages.map(page, 3 * page, 1));
  CHECK_EQUAL(machine->used_memory(0), page);
  CHECK_EQUAL(machine->used_memory(1), 3 * page);
  CHECK_EQUAL(machine->live_allocations(), std::size_t{3});  // the range and two pieces
  CHECK_OK(pages.grant(0, 4 * page, {0, 1}));
  const char seven = 7;
  std::vector<char> seen(4 * page);
  CHECK_OK(machine->fill(pages.address, on(0), &seven, 1, page, s0));
  machine.order(s0, s1);
  CHECK_OK(machine->copy(pages.address + page, on(1), pages.address, on(0), page, s1));
  machine.order(s1, s0, 1);
  CHECK_OK(machine->copy(address_of(seen.data()), host, pages.address, on(0), page, s0));
  CHECK_OK(machine->copy(address_of(seen.data()) + page, host, pages.address + page, on(1), 3 * page, s0));
  CHECK_OK(machine.wait(s0));
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK_EQUAL(int{seen[i]}, i < 2 * page ? 7 : 0);
  CHECK_OK(pages.unmap(0, 4 * page));
  CHECK_EQUAL(machine->used_memory(0) + machine->used_memory(1), std::size_t{0});
  CHECK_OK(machine->release_pages(pages.address, 4 * page));
  CHECK_EQUAL(machine->live_allocations(), std::size_t{0});
}

TEST(what_is_mapped_is_checked) {
  const Bench machine;
  const Pages pages(machine, 4 * page);
  Address other = 0;
  CHECK_FAILS(machine->reserve_pages(0, &other), Code::invalid_value, "positive multiple");
  CHECK_FAILS(machine->reserve_pages(page + 1, &other), Code::invalid_value, "4096 bytes: got 4097");
  CHECK_FAILS(pages.map(0, page, 2), Code::invalid_device, "got 2");
  CHECK_FAILS(pages.map(16, page, 0), Code::invalid_value,
              "4096 bytes: got 4096 bytes at offset 16 of range #1");
  CHECK_FAILS(pages.map(0, page + 16, 0), Code::invalid_value, "got 4112 bytes at offset 0");
  CHECK_FAILS(pages.map(0, 0, 0), Code::invalid_value, "1 to 16384 bytes from offset 0 of range #1: got 0");
  CHECK_FAILS(pages.map(3 * page, 2 * page, 0), Code::invalid_value, "1 to 4096 bytes from offset 12288");
  CHECK_FAILS(pages.map(4 * page, page, 0), Code::invalid_value, "lies in no reserved range");
  CHECK_OK(pages.map(page, 2 * page, 0));
  for (const std::size_t from : {std::size_t{0}, page, 2 * page}) {
    CHECK_FAILS(pages.map(from, 2 * page, 1), Code::invalid_value,
                "overlap mapped pages of range #1 [4096, 12288) on device 0; unmap_pages makes room");
  }
  CHECK_OK(pages.map(3 * page, page, 1));
  CHECK_EQUAL(machine->used_memory(0) + machine->used_memory(1), 3 * page);
}

TEST(pieces_are_unmapped_and_released_whole) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Pages pages(machine, 4 * page);
  CHECK_OK(pages.map(0, 2 * page, 0));
  CHECK_OK(pages.map(2 * page, page, 1));
  CHECK_FAILS(pages.unmap(0, page), Code::invalid_value, "a part of pages of range #1 [0, 8192) on device 0");
  CHECK_FAILS(pages.unmap(page, page), Code::invalid_value, "by whole pieces");
  CHECK_FAILS(pages.unmap(0, 4 * page), Code::invalid_value,
              "no pages are mapped at offset 12288 of range #1");
  CHECK_FAILS(pages.grant(page, page, {0}), Code::invalid_value, "by whole pieces");
  CHECK_FAILS(machine->free_device(0, pages.address, stream), Code::invalid_value,
              "is given back by unmap_pages");
  CHECK_FAILS(machine->release_pages(pages.address, 4 * page), Code::invalid_value,
              "pages of range #1 [0, 8192) on device 0 is still mapped");
  CHECK_EQUAL(machine->used_memory(0), 2 * page);  // nothing has changed so far
  CHECK_OK(pages.unmap(0, 3 * page));
  CHECK_FAILS(pages.unmap(0, 2 * page), Code::invalid_value, "no pages are mapped at offset 0");
  CHECK_FAILS(machine->release_pages(pages.address, page), Code::invalid_value, "released as a whole");
  CHECK_FAILS(machine->release_pages(pages.address + page, 4 * page), Code::invalid_value, "offset 4096");
  CHECK_OK(machine->release_pages(pages.address, 4 * page));
  CHECK_FAILS(machine->release_pages(pages.address, 4 * page), Code::invalid_value, "no range is reserved");
}

TEST(errors_name_the_pages) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Pages pages(machine, 4 * page);
  const char one = 1;
  CHECK_FAILS(
      machine->fill(pages.address, on(0), &one, 1, 16, stream), Code::invalid_value,
      "lie at offset 0 of range #1, where no pages are mapped; map_pages and grant_access come first");
  CHECK_OK(pages.map(0, page, 0));
  CHECK_OK(pages.map(page, page, 1));
  CHECK_OK(pages.grant(0, 2 * page, {0}));
  CHECK_FAILS(machine->fill(pages.address + page, on(1), &one, 1, page + 1, stream), Code::invalid_value,
              "4097 bytes from offset 0 reach past the end of pages of range #1 [4096, 8192) on device 1");
  CHECK_FAILS(machine.work(stream, "far", {{pages.address + 16, 2 * page, true}}), Code::invalid_value,
              "task 'far': out of bounds: 8192 bytes from offset 16 reach past the end of pages of range #1");
  // One copy does not span devices: it says where its bytes lie.
  CHECK_FAILS(machine->fill(pages.address, on(0), &one, 1, 2 * page, stream), Code::invalid_value,
              "pages of range #1 [4096, 8192) on device 1 was said to lie on device 0");
  CHECK_FAILS(machine->fill(pages.address, on(1), &one, 1, 16, stream), Code::invalid_value,
              "pages of range #1 [0, 4096) on device 0 was said to lie on device 1");
  CHECK_OK(pages.unmap(0, page));
  CHECK_FAILS(machine->fill(pages.address + 8, on(0), &one, 1, 16, stream), Code::invalid_value,
              "lie in unmapped pages of range #1 [0, 4096) on device 0");
  CHECK_EQUAL(machine->operations(), std::uint64_t{0});
}

TEST(copies_and_fills_span_pieces_of_one_device) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Pages pages(machine, 3 * page);
  for (std::size_t i = 0; i < 3; ++i) CHECK_OK(pages.map(i * page, page, 0));
  CHECK_OK(pages.grant(0, 3 * page, {0}));
  const std::uint16_t value = 513;
  std::vector<std::uint16_t> seen(3 * page / 2);
  CHECK_OK(machine->fill(pages.address, on(0), &value, 2, seen.size(), stream));
  CHECK_OK(machine->copy(address_of(seen.data()), host, pages.address, on(0), 3 * page, stream));
  CHECK_OK(machine.wait(stream));
  for (const std::uint16_t element : seen) CHECK_EQUAL(element, value);
}

TEST(pages_are_zeros_when_mapped_and_keep_their_bytes_while_they_are) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Pages pages(machine, 2 * page);
  const auto* bytes = reinterpret_cast<const unsigned char*>(pages.address);
  const char nine = 9;
  CHECK_OK(pages.map(0, page, 0));
  CHECK_OK(pages.map(page, page, 0));
  CHECK_OK(pages.grant(0, 2 * page, {0}));
  CHECK_OK(machine->fill(pages.address, on(0), &nine, 1, 2 * page, stream));
  CHECK_OK(machine.wait(stream));
  CHECK_OK(pages.unmap(0, page));
  CHECK_OK(pages.map(0, page, 1));
  CHECK_EQUAL(int{bytes[0]} + int{bytes[page - 1]}, 0);
  CHECK_EQUAL(int{bytes[page]} + int{bytes[2 * page - 1]}, 18);
}

TEST(nobody_reaches_pages_without_access) {
  const Bench machine;
  const StreamHandle s0 = machine.stream(0);
  const StreamHandle s1 = machine.stream(1);
  const Pages pages(machine, 2 * page);
  std::vector<char> user(page);
  CHECK_OK(pages.map(0, page, 0));
  CHECK_OK(pages.map(page, page, 1));
  CHECK_FAILS(
      machine.work(s0, "own", {{pages.address, 16, false}}), Code::invalid_value,
      "task 'own': device 0 has no access to pages of range #1 [0, 4096) on device 0; grant_access(0x");
  CHECK_OK(pages.grant(0, 2 * page, {0}));
  CHECK_OK(machine.work(s0, "both", {{pages.address, 2 * page, true}}));
  CHECK_FAILS(machine.work(s1, "other", {{pages.address, 2 * page, true}}), Code::invalid_value,
              ", 4096, {1})");
  CHECK_FAILS(machine->copy(address_of(user.data()), host, pages.address + page, on(1), page, s1),
              Code::invalid_value, "device 1 has no access to pages of range #1 [4096, 8192) on device 1");
  CHECK_FAILS(machine->copy(pages.address, on(0), address_of(user.data()), host, page, s1),
              Code::invalid_value, "device 1 has no access");
  // Rights add up, and end with the pages.
  CHECK_OK(pages.grant(page, page, {1}));
  CHECK_OK(machine.wait(s0));
  CHECK_OK(machine.work(s0, "still", {{pages.address, 2 * page, false}}));
  CHECK_OK(machine.work(s1, "now", {{pages.address + page, page, false}}));
  CHECK_OK(machine->drain());
  CHECK_OK(pages.unmap(page, page));
  CHECK_OK(pages.map(page, page, 1));
  CHECK_FAILS(machine.work(s1, "gone", {{pages.address + page, page, false}}), Code::invalid_value,
              "no access");
}

TEST(access_follows_the_links) {
  MachineSpec spec = tiny();
  for (LinkSpec& link : spec.links) link.peer = link.from == 1 && link.to == 0;
  const Bench machine(spec);
  const Pages pages(machine, 2 * page);
  CHECK_OK(pages.map(0, page, 0));
  CHECK_OK(pages.map(page, page, 1));
  CHECK_OK(pages.grant(0, page, {0, 1}));
  const Status refused = pages.grant(0, 2 * page, {1, 0});
  CHECK_FAILS(refused, Code::not_supported, "device 0 cannot reach the memory of device 1");
  CHECK_FAILS(machine.work(machine.stream(1), "none", {{pages.address + page, 16, false}}),
              Code::invalid_value,
              "no access");  // a grant that fails gives nothing
  CHECK_FAILS(pages.grant(0, page, {0, 7}), Code::invalid_device, "got 7");
}

TEST(pages_count_on_their_device) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const std::size_t half = 32 << 20;
  const Address block = machine.memory(half, stream);
  const Pages pages(machine, 3 * half);
  const Status refused = pages.map(0, half + page, 0);
  CHECK_FAILS(refused, Code::out_of_memory, "requested 33558528 bytes, free 33554432 of 67108864 bytes");
  CHECK_EQUAL(refused.failure().device, 0);
  CHECK_FAILS(pages.map(0, 3 * half, 1), Code::out_of_memory, "device 1 has no room");
  CHECK_EQUAL(machine->live_allocations(), std::size_t{2});
  CHECK_OK(machine->free_device(0, block, stream));
  CHECK_OK(pages.map(0, half + page, 0));  // the pending free is run when room is short
  machine->order_fault(FaultKind::allocation, 1, Code::out_of_memory);
  CHECK_FAILS(pages.map(16, page, 0), Code::invalid_value, "offset 16");  // does not count: refused anyway
  CHECK_FAILS(pages.map(half + page, page, 0), Code::out_of_memory, "an ordered fault");
  CHECK_OK(pages.map(half + page, page, 0));
  machine->order_fault(FaultKind::allocation, 1, Code::device_lost);
  CHECK_FAILS(pages.map(half + 2 * page, page, 0), Code::device_lost, "an ordered fault");
  CHECK_FAILS(pages.map(half + 2 * page, page, 0), Code::device_lost, "device 0 was lost");
  CHECK_OK(pages.unmap(0, half + 2 * page));
}

TEST(each_piece_notices_races) {
  const Shared shared;
  CHECK_OK(shared.machine.work(shared.a, "all", {{shared.pages.address, 2 * page, true}}));
  CHECK_OK(shared.machine.work(shared.b, "border", {{shared.pages.address + page - 8, 16, false}}));
  CHECK_EQUAL(shared.found(), std::size_t{2});
  CHECK_CONTAINS(shared.machine->conflicts()[0],
                 "touch bytes [4088, 4096) of pages of range #1 [0, 4096) on");
  CHECK_CONTAINS(shared.machine->conflicts()[1], "touch bytes [0, 8) of pages of range #1 [4096, 8192) on");
  shared.machine.order(shared.a, shared.b);
  CHECK_OK(shared.machine.work(shared.b, "ordered", {{shared.pages.address, 2 * page, true}}));
  CHECK_EQUAL(shared.found(), std::size_t{2});
  CHECK_OK(shared.pages.unmap(0, page));
  CHECK_CONTAINS(
      shared.machine->conflicts().back(),
      "the host unmaps pages of range #1 [0, 4096) on device 0 without having waited for task 'ordered'");
  const Shared waited;
  CHECK_OK(waited.machine.work(waited.a, "all", {{waited.pages.address, 2 * page, true}}));
  CHECK_OK(waited.machine.wait(waited.a));
  CHECK_OK(waited.pages.unmap(0, 2 * page));
  CHECK_EQUAL(waited.found(), std::size_t{0});
}

TEST(parts_of_a_whole_do_not_conflict) {
  const Shared shared;
  shared.part(shared.a, "left", 5, page);
  shared.part(shared.b, "right", 5, page);
  CHECK_EQUAL(shared.found(), std::size_t{0});
  shared.part(shared.b, "full", 5, 0);  // against a part: none of our business
  CHECK_EQUAL(shared.found(), std::size_t{0});
  const Shared full;
  full.part(full.a, "one", 5, 0);
  full.part(full.b, "two", 5, 2 * page);
  CHECK_EQUAL(full.found(), std::size_t{2});  // one a piece
  const Shared wholes;
  wholes.part(wholes.a, "first", 5, page);
  wholes.part(wholes.b, "second", 6, page);
  CHECK_EQUAL(wholes.found(), std::size_t{2});
  const Shared none;
  none.part(none.a, "first", 0, page);
  none.part(none.b, "second", 0, page);
  CHECK_EQUAL(none.found(), std::size_t{2});
}

// A part that lies over another one must not hide it from whoever comes later.
TEST(parts_hide_nothing) {
  const Shared shared;
  shared.part(shared.a, "left", 5, page);
  shared.part(shared.b, "right", 5, page);
  const StreamHandle reader = shared.machine.stream(0);
  shared.machine.order(shared.b, reader, 1);
  CHECK_OK(shared.machine.work(reader, "reader", {{shared.pages.address, 2 * page, false}}));
  CHECK_EQUAL(shared.found(), std::size_t{2});
  CHECK_CONTAINS(shared.machine->conflicts()[0], "task 'left'");
  // An earlier whole is not hidden from the second part of the next one either.
  const Shared next;
  next.part(next.a, "before", 0, 0);
  next.part(next.a, "left", 7, page);
  next.part(next.b, "right", 7, page);
  CHECK_EQUAL(next.found(), std::size_t{2});
  CHECK_CONTAINS(next.machine->conflicts()[0], "task 'before'");
  const Shared earlier;
  earlier.part(earlier.a, "before", 6, page);
  earlier.part(earlier.a, "left", 7, page);
  earlier.part(earlier.a, "full", 7, 0);
  earlier.part(earlier.b, "right", 7, page);
  CHECK_EQUAL(earlier.found(), std::size_t{2});
  CHECK_CONTAINS(earlier.machine->conflicts()[0], "task 'before'");
}

// What the check remembers of a range stays small while wholes follow each other.
TEST(many_wholes_stay_cheap) {
  const Shared shared;
  for (std::uint64_t whole = 1; whole <= 20000; ++whole) {
    shared.part(shared.a, "left", whole, page);
    shared.part(shared.b, "right", whole, page);
    shared.machine.order(shared.a, shared.b);
    shared.machine.order(shared.b, shared.a, 1);
  }
  CHECK_EQUAL(shared.found(), std::size_t{0});
  const StreamHandle loose = shared.machine.stream(0);
  CHECK_OK(shared.machine.work(loose, "loose", {{shared.pages.address, 2 * page, true}}));
  CHECK(shared.found() >= 4);
  CHECK(shared.found() <= 12);
}

// Operations that the host did not wait for write where nothing is mapped any more, and harm nobody.
TEST(a_racing_release_in_chaos_order_harms_no_memory) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Shared shared(Options{.chaos = true, .seed = seed});
    const char one = 1;
    CHECK_OK(shared.machine->fill(shared.pages.address, on(0), &one, 1, page, shared.a));
    CHECK_OK(shared.pages.unmap(0, 2 * page));
    CHECK_OK(shared.machine->release_pages(shared.pages.address, 2 * page));
    for (int i = 0; i < 40; ++i) {
      const Pages next(shared.machine, 2 * page);
      CHECK_OK(next.map(0, page, 0));
      CHECK_OK(next.unmap(0, page));
      CHECK_OK(shared.machine->release_pages(next.address, 2 * page));
    }
    CHECK_FAILS(shared.machine->drain(), Code::conflict, "the host unmaps");
    CHECK_EQUAL(shared.machine->live_allocations(), std::size_t{0});
  }
}

TEST(planning_needs_no_pages) {
  const Bench machine(h200(8), Options{.execute = false});
  const std::size_t piece = std::size_t{100} << 30;
  const Pages pages(machine, 8 * piece);
  CHECK_EQUAL(pages.address % (2 << 20), Address{0});
  for (int device = 0; device < 8; ++device) CHECK_OK(pages.map(device * piece, piece, device));
  CHECK_OK(pages.grant(0, 8 * piece, {0, 7}));
  CHECK_OK(machine.work(machine.stream(7), "all", {{pages.address, 8 * piece, true}}));
  CHECK_OK(machine->drain());
  CHECK_OK(pages.unmap(0, 8 * piece));
}

TEST(devices_may_have_pages_of_different_sizes) {
  MachineSpec spec = tiny();
  spec.devices[1].page = 65536;
  const Bench machine(spec);
  Address other = 0;
  CHECK_FAILS(machine->reserve_pages(5 * page, &other), Code::invalid_value, "65536 bytes: got 20480");
  const Pages pages(machine, 3 * 65536);
  CHECK_EQUAL(pages.address % 65536, Address{0});
  CHECK_OK(pages.map(0, page, 0));
  CHECK_FAILS(pages.map(page, 65536, 1), Code::invalid_value, "granularity of device 1, 65536 bytes");
  CHECK_OK(pages.map(65536, 65536, 1));
  CHECK_OK(pages.map(page, 4 * page, 0));
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{2048}, 3 * page}) {
    spec.devices[1].page = wrong;
    std::shared_ptr<SimDriver> driver;
    CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value,
                "page is a power of two, at least 4096");
  }
}

int main() { return check::run_all(); }
