// Virtual times: the measured rows of an H200, and the rules behind them.
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

double eight_kernels(int stream_count) {
  const Bench machine(h200(1));
  std::vector<StreamHandle> streams;
  for (int i = 0; i < stream_count; ++i) streams.push_back(machine.stream());
  const double begin = machine->now_us();
  for (int i = 0; i < 8; ++i) CHECK_OK(machine.busy(streams[i % stream_count], 1000, 8));
  CHECK_OK(machine->drain());
  return machine->now_us() - begin;
}

// Submit to done of a one-SM kernel behind a bulk kernel that fills the device in nine waves of 128 us.
double small_behind_bulk(int priority) {
  const Bench machine(h200(1));
  const StreamHandle bulk = machine.stream();
  const StreamHandle small = machine.stream(0, priority);
  CHECK_OK(machine.busy(bulk, 1152, 132, 9));
  const double begin = machine->now_us();
  CHECK_OK(machine.busy(small, 5, 1));
  CHECK_OK(machine.wait(small));
  return machine->now_us() - begin;
}

}  // namespace

TEST(kernels_share_the_device_as_measured) {
  CHECK_WITHIN(eight_kernels(1), 8110.0, 0.15);
  CHECK_WITHIN(eight_kernels(8), 1090.0, 0.15);
}

TEST(latency_behind_bulk_work_is_as_measured) {
  CHECK_WITHIN(small_behind_bulk(0), 1161.0, 0.15);
  CHECK_WITHIN(small_behind_bulk(-5), 140.0, 0.15);
}

TEST(kernel_launches_cost_the_host_what_was_measured) {
  const Bench machine(h200(1));
  const StreamHandle stream = machine.stream();
  const double begin = machine->now_us();
  for (int i = 0; i < 5000; ++i) CHECK_OK(machine.busy(stream, 2, 132));
  CHECK_OK(machine.wait(stream));
  CHECK_WITHIN((machine->now_us() - begin) / 5000, 3.9, 0.15);
}

TEST(copies_run_at_the_bandwidth_of_their_way) {
  const Bench machine(h200(2));
  const std::size_t nbytes = std::size_t{1} << 30;
  const StreamHandle stream = machine.stream();
  const Bench planned(h200(2), Options{.execute = false});
  const StreamHandle s0 = planned.stream(0);
  const StreamHandle s1 = planned.stream(1);
  const Address a = planned.memory(nbytes, s0, 0);
  const Address b = planned.memory(nbytes, s0, 0);
  const Address c = planned.memory(nbytes, s1, 1);
  const EventHandle from = planned.event(0, true);
  const EventHandle to = planned.event(0, true);
  const auto rate = [&](Address target, Location target_at, Address source, Location source_at) {
    CHECK_OK(planned->record_event(from, s0));
    CHECK_OK(planned->copy(target, target_at, source, source_at, nbytes, s0));
    CHECK_OK(planned->record_event(to, s0));
    CHECK_OK(planned.wait(s0));
    double us = 0;
    CHECK_OK(planned->elapsed_us(from, to, &us));
    return static_cast<double>(nbytes) / us / 1e3;
  };
  planned.order(s1, s0, 1);
  CHECK_WITHIN(rate(b, on(0), a, on(0)), 2142.0, 0.02);
  CHECK_WITHIN(rate(c, on(1), a, on(0)), 397.0, 0.02);
  CHECK_WITHIN(rate(a, on(0), Address{4096}, host), 55.0, 0.02);
  CHECK_OK(machine.wait(stream));
}

TEST(devices_without_a_link_copy_through_the_host) {
  MachineSpec spec = h200(2);
  std::erase_if(spec.links, [](const LinkSpec& link) { return link.from >= 0 && link.to >= 0; });
  const Bench machine(spec, Options{.execute = false});
  const StreamHandle s0 = machine.stream(0);
  const StreamHandle s1 = machine.stream(1);
  const Address a = machine.memory(55000000, s0, 0);
  const Address b = machine.memory(55000000, s1, 1);
  machine.order(s1, s0, 1);
  CHECK_OK(machine.wait(s0));
  const double begin = machine->now_us();
  CHECK_OK(machine->copy(b, on(1), a, on(0), 55000000, s0));
  CHECK_OK(machine.wait(s0));
  CHECK_WITHIN(machine->now_us() - begin, 2000.0, 0.02);
  CHECK_FAILS(machine->enable_peer_access(0, 1), Code::not_supported, "are no peers");
}

TEST(a_link_serves_one_copy_and_directions_overlap) {
  const Bench machine(h200(1), Options{.execute = false});
  const std::size_t nbytes = 55000000;  // 1 ms
  std::vector<StreamHandle> streams;
  std::vector<Address> blocks;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(machine.stream());
    blocks.push_back(machine.memory(nbytes, streams[i]));
  }
  const double begin = machine->now_us();
  CHECK_OK(machine->copy(blocks[0], on(0), Address{1} << 20, host, nbytes, streams[0]));
  CHECK_OK(machine->copy(blocks[1], on(0), Address{1} << 30, host, nbytes, streams[1]));
  CHECK_OK(machine->copy(Address{1} << 40, host, blocks[2], on(0), nbytes, streams[2]));
  CHECK_OK(machine.wait(streams[2]));
  CHECK_WITHIN(machine->now_us() - begin, 1000.0, 0.03);
  CHECK_OK(machine.wait(streams[1]));
  CHECK_WITHIN(machine->now_us() - begin, 2000.0, 0.03);
}

TEST(default_cost_is_bytes_over_the_share_of_bandwidth) {
  const Bench machine(h200(1), Options{.execute = false});
  const StreamHandle stream = machine.stream();
  const std::size_t nbytes = 2142000000;  // 1 ms on the whole device
  const Address a = machine.memory(nbytes, stream);
  const Access access{a, nbytes, true};
  for (const int sms : {0, 66}) {
    const double begin = machine->now_us();
    CHECK_OK(machine->host_work(stream, nullptr, nullptr, nullptr, Work{"sweep", -1, sms, 1, {&access, 1}}));
    CHECK_OK(machine.wait(stream));
    CHECK_WITHIN(machine->now_us() - begin, sms == 0 ? 1000.0 : 2000.0, 0.03);
  }
}

TEST(two_runs_give_the_same_timeline) {
  const auto run = [](bool query_often) {
    const Bench machine(h200(2));
    machine->record_timeline(true);
    std::vector<StreamHandle> streams;
    for (int i = 0; i < 6; ++i) streams.push_back(machine.stream(i % 2, -(i % 3)));
    for (int i = 0; i < 500; ++i) {
      const StreamHandle stream = streams[(i * 7) % 6];
      CHECK_OK(machine.busy(stream, 10 + (i * 37) % 50, 1 + (i * 31) % 132, 1 + i % 4));
      if (i % 5 == 0) machine.order(stream, streams[i % 6], (i * 7) % 6 % 2);
      if (query_often) (void)machine->timeline();
    }
    CHECK_OK(machine->drain());
    return machine->timeline();
  };
  const auto first = run(false);
  const auto second = run(true);  // also: when the clock is computed changes nothing
  CHECK_EQUAL(first.size(), std::size_t{500});
  CHECK_EQUAL(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK_EQUAL(first[i].start_us, second[i].start_us);
    CHECK_EQUAL(first[i].end_us, second[i].end_us);
    CHECK_EQUAL(first[i].stream, second[i].stream);
  }
}

TEST(elapsed_needs_timing_events_that_are_over) {
  const Bench machine(h200(1));
  const StreamHandle stream = machine.stream();
  const EventHandle from = machine.event(0, true);
  const EventHandle to = machine.event(0, true);
  const EventHandle plain = machine.event();
  double us = 0;
  CHECK_OK(machine->record_event(from, stream));
  CHECK_FAILS(machine->elapsed_us(from, to, &us), Code::invalid_value, "must have been recorded");
  CHECK_OK(machine.busy(stream, 500, 1));
  CHECK_OK(machine->record_event(to, stream));
  CHECK_FAILS(machine->elapsed_us(from, to, &us), Code::not_ready, "");
  CHECK_FAILS(machine->elapsed_us(from, plain, &us), Code::invalid_value, "timing");
  CHECK_OK(machine->synchronize_event(to, {}));
  CHECK_OK(machine->elapsed_us(from, to, &us));
  CHECK_WITHIN(us, 504.0, 0.01);
}

TEST(pending_work_is_bounded) {
  const Bench machine(h200(1));
  const StreamHandle stream = machine.stream();
  for (int i = 0; i < 40000; ++i) CHECK_OK(machine.busy(stream, 100, 132));
  // A real enqueue blocks as well once the queue is full: the host cannot be 40,000 kernels ahead.
  CHECK(machine->now_us() > 100.0 * 20000);
  CHECK_OK(machine.wait(stream));
  CHECK_WITHIN(machine->now_us(), 4e6, 0.01);
}

int main() { return check::run_all(); }
