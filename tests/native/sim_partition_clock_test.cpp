// Virtual times on green contexts: the measured rows, and who gets which SMs when.
#include <algorithm>

#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

// Groups `from` to the end, and what is left.
std::vector<SmResource> others(const Cut& cut, std::size_t from) {
  std::vector<SmResource> all(cut.groups.begin() + static_cast<std::ptrdiff_t>(from), cut.groups.end());
  all.push_back(cut.left);
  return all;
}

// A machine on which submitting costs nothing, so that tests can speak of exact times.
Bench free_of_charge(int devices = 1) {
  MachineSpec spec = h200(devices);
  spec.costs = {};
  const Bench machine(spec);
  machine->record_timeline(true);
  return machine;
}

// When the only work on `stream` began and ended.
TimelineEntry entry_of(const Bench& machine, StreamHandle stream) {
  for (const TimelineEntry& entry : machine->timeline()) {
    if (entry.stream == stream) return entry;
  }
  check::fail(__FILE__, __LINE__, "nothing has run on stream " + std::to_string(stream));
  return {};
}

double eight_kernels_in_eight_contexts() {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(stream_of(machine, context_of(machine, {cut.groups[i]})));
  const double begin = machine->now_us();
  for (const StreamHandle stream : streams) CHECK_OK(machine.busy(stream, 1000, 8));
  CHECK_OK(machine->drain());
  return machine->now_us() - begin;
}

// Submit to done of a one-SM kernel of 28 us behind a bulk kernel that fills its SMs in eleven waves of 100
// us.
double small_behind_bulk(bool partition, int priority) {
  const Bench machine(h200(1));
  StreamHandle bulk = 0;
  StreamHandle small = 0;
  if (partition) {
    const Cut cut(machine, 8);
    small = stream_of(machine, context_of(machine, {cut.groups[0]}), priority);
    bulk = stream_of(machine, context_of(machine, others(cut, 1)));
  } else {
    bulk = machine.stream();
    small = machine.stream(0, priority);
  }
  CHECK_OK(machine.busy(bulk, 1100, 0, 11));
  const double begin = machine->now_us();
  CHECK_OK(machine.busy(small, 28, 1));
  CHECK_OK(machine.wait(small));
  return machine->now_us() - begin;
}

// 1000 kernels on overlapping green contexts of 48 SMs and on the whole device, `crossing` of 5 behind
// another stream's.
std::vector<TimelineEntry> crowded_run(int crossing, int waves, bool query_often) {
  const Bench machine(h200(1));
  machine->record_timeline(true);
  std::vector<StreamHandle> streams;
  const Cut cut(machine, 24);
  for (int i = 0; i < 4; ++i) {
    streams.push_back(stream_of(machine, context_of(machine, {cut.groups[i], cut.groups[i + 1]}), -(i % 3)));
  }
  streams.push_back(machine.stream());
  for (int i = 0; i < 1000; ++i) {
    const int at = (i * 7) % 5;
    const int width = at < 4 ? 48 : 132;
    CHECK_OK(machine.busy(streams[at], 10 + (i * 37) % 50, 1 + (i * 31) % width, 1 + i % waves));
    if (i % 5 < crossing) machine.order(streams[at], streams[(at + i / 5) % 5]);
    if (query_often) (void)machine->timeline();
  }
  CHECK_OK(machine->drain());
  return machine->timeline();
}

}  // namespace

// ---- The measured rows ----

TEST(kernels_of_eight_partitions_run_side_by_side_as_measured) {
  CHECK_WITHIN(eight_kernels_in_eight_contexts(), 1100.0, 0.15);
}

TEST(latency_beside_bulk_work_is_as_measured) {
  CHECK_WITHIN(small_behind_bulk(false, 0), 1161.0, 0.15);
  CHECK_WITHIN(small_behind_bulk(false, -5), 140.0, 0.15);
  CHECK_WITHIN(small_behind_bulk(true, 0), 45.0, 0.15);
}

TEST(making_a_context_costs_the_host_what_was_measured) {
  const Bench machine(h200(1));
  const Cut cut(machine, 64);
  const double begin = machine->now_us();
  context_of(machine, {cut.groups[0]});
  CHECK(machine->now_us() - begin >= 1000 && machine->now_us() - begin <= 2400);
}

// ---- SMs as individuals ----

TEST(kernels_are_as_wide_as_their_context) {
  const Bench machine(h200(1), Options{.execute = false});
  machine->record_timeline(true);
  const Cut cut(machine, 64);
  const StreamHandle stream = stream_of(machine, context_of(machine, {cut.groups[0], cut.left}));
  const std::size_t nbytes = 2142000000;  // 1 ms on the whole device
  const Address a = machine.memory(nbytes, stream);
  const Access access{a, nbytes, true};
  CHECK_OK(machine->host_work(stream, nullptr, nullptr, nullptr, Work{"sweep", -1, 0, 1, {&access, 1}}));
  CHECK_OK(machine.wait(stream));
  const TimelineEntry sweep = entry_of(machine, stream);
  CHECK_EQUAL(sweep.sms, 68);
  CHECK_WITHIN(sweep.end_us - sweep.start_us, 1000.0 * 132 / 68, 0.01);
  CHECK_FAILS(machine.busy(stream, 1, 69), Code::invalid_value,
              "task 'busy' can use 1 to 68 SMs of green context 2 on device 0 (0: all): got 69");
}

TEST(a_kernel_that_waits_for_its_partition_keeps_nobody_else) {
  const Bench machine = free_of_charge();
  const Cut cut(machine, 8);
  const ContextHandle first = context_of(machine, {cut.groups[0]});
  const ContextHandle second = context_of(machine, {cut.groups[1]});
  const StreamHandle holder = stream_of(machine, first);
  const StreamHandle waiter = stream_of(machine, first);
  const StreamHandle neighbour = stream_of(machine, second);
  const StreamHandle plain = machine.stream();
  CHECK_OK(machine.busy(holder, 100, 4));
  CHECK_OK(machine.busy(waiter, 10, 8));
  CHECK_OK(machine.busy(neighbour, 10, 8));
  CHECK_OK(machine.busy(plain, 10, 116));  // as many as lie outside both partitions
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, waiter).start_us, 100.0);
  CHECK_EQUAL(entry_of(machine, neighbour).start_us, 0.0);
  CHECK_EQUAL(entry_of(machine, plain).start_us, 0.0);
}

TEST(a_kernel_that_waits_reserves_what_it_could_run_on) {
  const Bench machine = free_of_charge();
  const Cut cut(machine, 8);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  const StreamHandle holder = stream_of(machine, context);
  const StreamHandle waiter = stream_of(machine, context);
  const StreamHandle later = stream_of(machine, context);
  const StreamHandle wide = machine.stream();
  const StreamHandle behind_wide = machine.stream();
  CHECK_OK(machine.busy(holder, 100, 4));
  CHECK_OK(machine.busy(waiter, 10, 8));
  CHECK_OK(machine.busy(later, 10, 2));  // would fit beside the holder, and comes after the waiter
  CHECK_OK(machine.busy(wide, 10, 125));
  CHECK_OK(machine.busy(behind_wide, 10, 1));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, waiter).start_us, 100.0);
  CHECK_EQUAL(entry_of(machine, later).start_us, 110.0);
  CHECK_EQUAL(entry_of(machine, wide).start_us, 110.0);
  CHECK_EQUAL(entry_of(machine, behind_wide).start_us, 110.0);
}

TEST(urgent_kernels_come_first_within_a_partition) {
  const Bench machine = free_of_charge();
  const Cut cut(machine, 8);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  const StreamHandle bulk = stream_of(machine, context);
  const StreamHandle patient = stream_of(machine, context);
  const StreamHandle urgent = stream_of(machine, context, -3);
  CHECK_OK(machine.busy(bulk, 100, 0, 4));
  CHECK_OK(machine.busy(patient, 10, 1));
  CHECK_OK(machine.busy(urgent, 10, 1));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, urgent).start_us, 25.0);
  CHECK_EQUAL(entry_of(machine, bulk).end_us, 110.0);
  CHECK_EQUAL(entry_of(machine, patient).start_us, 110.0);
}

TEST(contexts_that_share_sms_take_turns) {
  const Bench machine = free_of_charge();
  const Cut cut(machine, 8);
  const StreamHandle left = stream_of(machine, context_of(machine, {cut.groups[0], cut.groups[1]}));
  const StreamHandle right = stream_of(machine, context_of(machine, {cut.groups[1], cut.groups[2]}));
  const StreamHandle apart = stream_of(machine, context_of(machine, {cut.groups[3]}));
  CHECK_OK(machine.busy(left, 100, 0));
  CHECK_OK(machine.busy(right, 50, 9));
  CHECK_OK(machine.busy(apart, 50, 8));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, right).start_us, 100.0);
  CHECK_EQUAL(entry_of(machine, apart).start_us, 0.0);
}

TEST(device_wide_kernels_take_the_lowest_free_sms) {
  const Bench machine = free_of_charge();
  const Cut cut(machine, 8);
  const StreamHandle low = stream_of(machine, context_of(machine, {cut.groups[0]}));
  const StreamHandle high = stream_of(machine, context_of(machine, {cut.groups[14]}));
  CHECK_OK(machine.busy(machine.stream(), 100, 8));
  CHECK_OK(machine.busy(low, 10, 1));
  CHECK_OK(machine.busy(high, 10, 8));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, low).start_us, 100.0);
  CHECK_EQUAL(entry_of(machine, high).start_us, 0.0);
}

TEST(kernels_that_run_when_the_first_context_is_made_keep_their_sms) {
  const Bench machine = free_of_charge(2);
  const Cut cut(machine, 8);
  std::vector<StreamHandle> plain;
  for (int i = 0; i < 3; ++i) plain.push_back(machine.stream());
  CHECK_OK(machine.busy(plain[0], 100, 6, 2));
  CHECK_OK(machine.busy(plain[1], 100, 6, 2));
  CHECK_OK(machine.busy(plain[2], 100, 121));  // waits
  machine->advance_us(10);
  const StreamHandle low = stream_of(machine, context_of(machine, {cut.groups[0]}));
  const StreamHandle high = stream_of(machine, context_of(machine, {cut.left}));
  CHECK_OK(machine.busy(low, 10, 3));
  CHECK_OK(machine.busy(high, 10, 0));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(entry_of(machine, plain[0]).end_us, 200.0 - 100.0);
  CHECK_EQUAL(entry_of(machine, plain[1]).end_us, 100.0);
  CHECK_EQUAL(entry_of(machine, plain[2]).start_us, 100.0);
  CHECK_EQUAL(entry_of(machine, low).start_us, 200.0);  // behind the wide kernel that waited already
  CHECK_EQUAL(entry_of(machine, high).start_us, 200.0);
}

TEST(two_runs_with_contexts_give_the_same_timeline) {
  const auto first = crowded_run(1, 4, false);
  const auto second = crowded_run(1, 4, true);  // also: when the clock is computed changes nothing
  CHECK_EQUAL(first.size(), std::size_t{1000});
  CHECK_EQUAL(second.size(), first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK_EQUAL(first[i].start_us, second[i].start_us);
    CHECK_EQUAL(first[i].end_us, second[i].end_us);
    CHECK_EQUAL(first[i].stream, second[i].stream);
  }
}

TEST(no_sm_is_used_twice) {
  const auto entries = crowded_run(0, 1, false);
  StreamHandle first = entries.front().stream;
  for (const TimelineEntry& entry : entries) first = std::min(first, entry.stream);
  for (const TimelineEntry& now : entries) {
    // By number of the context: those up to it stay within its last SM, the device-wide stream is number 4.
    int used[5] = {};
    for (const TimelineEntry& other : entries) {
      if (other.start_us > now.start_us || other.end_us <= now.start_us) continue;
      for (std::size_t k = (other.stream - first) % 5; k < 5; ++k) used[k] += other.sms;
    }
    for (int k = 0; k < 5; ++k) CHECK(used[k] <= (k < 4 ? 24 * (k + 2) : 132));
  }
}

int main() { return check::run_all(); }
