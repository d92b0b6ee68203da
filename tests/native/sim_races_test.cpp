// Conflicting operations without an order, and chaos order, which makes them visible.
#include <set>

#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

struct Pair {
  Bench machine;
  StreamHandle a = machine.stream();
  StreamHandle b = machine.stream();
  Address block = machine.memory(4096, a);

  explicit Pair(const Options& options = {}) : machine(tiny(), options) { machine.order(a, b); }
  std::size_t found() const { return machine->conflicts().size(); }
};

}  // namespace

TEST(a_report_names_tasks_streams_and_bytes) {
  const Pair pair;
  CHECK_OK(pair.machine.work(pair.a, "a", {{pair.block, 4096, false}}));
  CHECK_OK(pair.machine.work(pair.b, "b", {{pair.block, 4096, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{1});
  CHECK_EQUAL(pair.machine->conflicts()[0],
              "race: task 'b' (write, stream " + std::to_string(pair.b) + ") and task 'a' (read, stream " +
                  std::to_string(pair.a) +
                  ") touch bytes [0, 4096) of allocation #1 on device 0 without an order between them");
  CHECK_FAILS(pair.machine.wait(pair.a), Code::conflict, "race: task 'b'");
  CHECK_OK(pair.machine.wait(pair.a));  // once a report
}

TEST(an_order_may_come_from_events_streams_and_the_host) {
  const Pair pair;
  const StreamHandle c = pair.machine.stream();
  CHECK_OK(pair.machine.work(pair.a, "a", {{pair.block, 4096, true}}));
  CHECK_OK(pair.machine.work(pair.a, "b", {{pair.block, 4096, true}}));
  pair.machine.order(pair.a, pair.b);
  pair.machine.order(pair.b, c);
  CHECK_OK(pair.machine.work(c, "through a third stream", {{pair.block, 4096, true}}));
  CHECK_OK(pair.machine.wait(c));
  CHECK_OK(pair.machine.work(pair.b, "through the host", {{pair.block, 4096, true}}));
  const EventHandle event = pair.machine.event();
  CHECK_OK(pair.machine->record_event(event, pair.b));
  pair.machine->advance_us(1000);
  CHECK_OK(pair.machine->query_event(event));
  CHECK_OK(pair.machine.work(pair.a, "through a query", {{pair.block, 4096, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{0});
}

TEST(only_overlapping_bytes_and_writes_conflict) {
  const Pair pair;
  CHECK_OK(pair.machine.work(pair.a, "low", {{pair.block, 2048, true}}));
  CHECK_OK(pair.machine.work(pair.b, "high", {{pair.block + 2048, 2048, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{0});
  CHECK_OK(pair.machine.work(pair.b, "border", {{pair.block + 2040, 16, false}}));
  CHECK_EQUAL(pair.found(), std::size_t{1});
  CHECK_CONTAINS(pair.machine->conflicts()[0], "bytes [2040, 2048)");
  const Pair readers;
  CHECK_OK(readers.machine.work(readers.a, "a", {{readers.block, 4096, false}}));
  CHECK_OK(readers.machine.work(readers.b, "b", {{readers.block, 4096, false}}));
  CHECK_EQUAL(readers.found(), std::size_t{0});
  // Both readers count against the next writer.
  CHECK_OK(readers.machine.work(readers.machine.stream(), "c", {{readers.block, 4096, true}}));
  CHECK_EQUAL(readers.found(), std::size_t{3});
}

TEST(an_event_orders_only_what_was_before_it) {
  const Pair pair;
  const EventHandle event = pair.machine.event();
  CHECK_OK(pair.machine.work(pair.a, "before", {{pair.block, 16, true}}));
  CHECK_OK(pair.machine->record_event(event, pair.a));
  CHECK_OK(pair.machine.work(pair.a, "after", {{pair.block + 16, 16, true}}));
  CHECK_OK(pair.machine->wait_event(pair.b, event));
  CHECK_OK(pair.machine.work(pair.b, "fine", {{pair.block, 16, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{0});
  CHECK_OK(pair.machine.work(pair.b, "not", {{pair.block + 16, 16, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{1});
}

TEST(allocations_frees_copies_and_host_memory_count) {
  const Pair pair;
  std::vector<char> user(4096);
  const Address other = pair.machine.memory(4096, pair.b);
  CHECK_OK(pair.machine.work(pair.a, "early", {{other, 16, false}}));
  CHECK_CONTAINS(pair.machine->conflicts().back(), "allocation (write, stream");
  CHECK_OK(pair.machine->copy(address_of(user.data()), host, pair.block, on(0), 4096, pair.a));
  CHECK_OK(pair.machine->copy(other, on(0), address_of(user.data()) + 100, host, 10, pair.b));
  CHECK_CONTAINS(pair.machine->conflicts()[1], "copy (read, stream");
  CHECK_CONTAINS(pair.machine->conflicts()[1], "of host memory at 0x");
  CHECK_OK(pair.machine->free_device(0, pair.block, pair.b));
  CHECK_CONTAINS(pair.machine->conflicts().back(), "race: free (write, stream");
  Address pinned = 0;
  CHECK_OK(pair.machine->allocate_host(64, &pinned));
  CHECK_OK(pair.machine.work(pair.a, "user", {{pinned, 64, false}}));
  CHECK_OK(pair.machine->free_host(pinned));
  CHECK_CONTAINS(pair.machine->conflicts().back(), "without having waited for task 'user'");
}

TEST(a_body_is_no_wait_of_the_host) {
  const Pair pair;
  CHECK_OK(pair.machine->begin_body(pair.a, {}));
  const Access access{pair.block, 64, true};
  CHECK_OK(pair.machine->end_body(pair.a, Work{"a", 1, 1, 1, {&access, 1}}));
  CHECK_OK(pair.machine->begin_body(pair.b, {}));
  CHECK_OK(pair.machine->end_body(pair.b, Work{"b", 1, 1, 1, {&access, 1}}));
  CHECK_EQUAL(pair.found(), std::size_t{1});
}

TEST(streams_that_come_and_go_keep_the_check_exact_and_small) {
  const Pair pair;
  for (int i = 0; i < 3000; ++i) {
    const StreamHandle stream = pair.machine.stream();
    pair.machine.order(pair.a, stream);
    CHECK_OK(pair.machine.work(stream, "step", {{pair.block, 64, true}}));
    if (i % 2 == 0) CHECK_OK(pair.machine.wait(stream));
    pair.machine.order(stream, pair.a);
    CHECK_OK(pair.machine->destroy_stream(stream));
  }
  CHECK_EQUAL(pair.found(), std::size_t{0});
  const StreamHandle stream = pair.machine.stream();
  CHECK_OK(pair.machine.work(stream, "loose", {{pair.block, 64, true}}));
  CHECK_EQUAL(pair.found(), std::size_t{1});
}

TEST(many_pieces_stay_cheap) {
  const Pair pair;
  const Address big = pair.machine.memory(1 << 24, pair.a);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20000; ++i) {
      CHECK_OK(pair.machine.work(pair.a, "piece", {{big + i * 64, 64, true}}));
      if (i % 1000 == 0) CHECK_OK(pair.machine.wait(pair.a));
    }
  }
  CHECK_EQUAL(pair.found(), std::size_t{0});
}

TEST(the_check_can_be_switched_off) {
  const Pair pair(Options{.check_conflicts = false});
  CHECK_OK(pair.machine.work(pair.a, "a", {{pair.block, 4096, true}}));
  CHECK_OK(pair.machine.work(pair.b, "b", {{pair.block, 4096, true}}));
  CHECK_OK(pair.machine->drain());
  CHECK_EQUAL(pair.found(), std::size_t{0});
}

namespace {

struct Append {
  std::string* text;
  char letter;
  static void run(void* argument) {
    auto* append = static_cast<Append*>(argument);
    append->text->push_back(append->letter);
  }
};

std::string letters(bool ordered, std::uint64_t seed) {
  const Bench machine(tiny(), Options{.chaos = true, .seed = seed});
  std::string text;
  Append appends[4] = {{&text, 'a'}, {&text, 'b'}, {&text, 'c'}, {&text, 'd'}};
  StreamHandle streams[4];
  for (StreamHandle& stream : streams) stream = machine.stream();
  for (int i = 0; i < 4; ++i) {
    if (ordered && i > 0) machine.order(streams[i - 1], streams[i]);
    CHECK_OK(machine->host_function(streams[i], Append::run, &appends[i]));
  }
  CHECK_OK(machine->drain());
  return text;
}

}  // namespace

TEST(chaos_shows_missing_orders_and_keeps_given_ones) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CHECK_EQUAL(letters(true, seed), std::string("abcd"));
    seen.insert(letters(false, seed));
    CHECK_EQUAL(letters(false, seed), letters(false, seed));
  }
  CHECK(seen.size() > 5);
}

TEST(a_racing_free_in_chaos_order_harms_no_memory) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Pair pair(Options{.chaos = true, .seed = seed});
    const Address big = pair.machine.memory(1 << 20, pair.a);
    const char one = 1;
    CHECK_OK(pair.machine->fill(big, on(0), &one, 1, 1 << 20, pair.b));
    CHECK_OK(pair.machine->free_device(0, big, pair.a));
    CHECK_FAILS(pair.machine->drain(), Code::conflict, "race");
    CHECK_EQUAL(pair.machine->used_memory(0), std::size_t{4096});
  }
}

int main() { return check::run_all(); }
