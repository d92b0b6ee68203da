// Streams, events and host functions: when effects are made and what waits for what.
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

void count_up(void* argument) { ++*static_cast<int*>(argument); }

struct Blocking {
  SimDriver* driver;
  StreamHandle stream;
  Status sync;
  Status query;
  Status drained;
};

void wait_inside(void* argument) {
  auto* blocking = static_cast<Blocking*>(argument);
  blocking->sync = blocking->driver->synchronize_stream(blocking->stream, {});
  blocking->query = blocking->driver->query_stream(blocking->stream);
  blocking->drained = blocking->driver->drain();
}

}  // namespace

TEST(nothing_runs_before_somebody_waits) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  int calls = 0;
  int released = 0;
  for (int i = 0; i < 10; ++i) {
    CHECK_OK(machine->host_function(stream, count_up, &calls));
    CHECK_OK(machine->host_work(stream, count_up, nullptr, &calls, Work{"work", 1, 1, 1, {}}));
  }
  CHECK_OK(machine->host_work(stream, nullptr, count_up, &released, Work{"nothing", 1, 1, 1, {}}));
  CHECK_EQUAL(calls, 0);
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(calls, 20);
  CHECK_EQUAL(released, 1);
  CHECK_EQUAL(machine->operations(), std::uint64_t{21});
}

TEST(copies_and_fills_move_bytes_in_stream_order) {
  const Bench machine;
  const StreamHandle s0 = machine.stream(0);
  const StreamHandle s1 = machine.stream(1);
  std::vector<int> source(3000), target(3000, -1);
  for (int i = 0; i < 3000; ++i) source[i] = i;
  const std::size_t nbytes = source.size() * sizeof(int);
  const Address a = machine.memory(nbytes, s0, 0);
  const Address b = machine.memory(nbytes, s1, 1);
  machine.order(s1, s0, 1);
  const int seven = 7;
  CHECK_OK(machine->copy(a, on(0), address_of(source.data()), host, nbytes, s0));
  CHECK_OK(machine->fill(a + 40, on(0), &seven, 4, 1000, s0));
  CHECK_OK(machine->copy(b, on(1), a, on(0), nbytes, s0));
  machine.order(s0, s1, 0);
  CHECK_OK(machine->copy(address_of(target.data()), host, b, on(1), nbytes, s1));
  CHECK_OK(machine.wait(s1));
  CHECK_EQUAL(target[9], 9);
  CHECK_EQUAL(target[10], 7);
  CHECK_EQUAL(target[1009], 7);
  CHECK_EQUAL(target[1010], 1010);
  CHECK_EQUAL(machine->conflicts().size(), std::size_t{0});
}

TEST(fills_take_every_width) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const unsigned char value[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (const std::size_t width : {1, 2, 4, 8, 16}) {
    std::vector<unsigned char> target(width * 77);
    CHECK_OK(machine->fill(address_of(target.data()), host, value, width, 77, stream));
    CHECK_OK(machine.wait(stream));
    for (std::size_t i = 0; i < target.size(); ++i) CHECK_EQUAL(int{target[i]}, int{value[i % width]});
  }
  CHECK_FAILS(machine->fill(0, host, value, 3, 1, stream), Code::invalid_value, "got 3");
}

TEST(queries_tell_when_work_is_over) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const EventHandle event = machine.event();
  CHECK_OK(machine->query_event(event));  // never recorded
  CHECK_OK(machine.busy(stream, 100, 1));
  CHECK_OK(machine->record_event(event, stream));
  CHECK_FAILS(machine->query_event(event), Code::not_ready, "query_event");
  CHECK_FAILS(machine->query_stream(stream), Code::not_ready, "query_stream");
  machine->advance_us(200);
  CHECK_OK(machine->query_event(event));
  CHECK_OK(machine->query_stream(stream));
  CHECK_OK(machine.busy(stream, 100, 1));
  int polls = 0;
  while (machine->query_stream(stream).is(Code::not_ready)) ++polls;
  CHECK(polls > 10 && polls < 1000);
}

TEST(a_wait_captures_the_record_of_its_call) {
  const Bench machine;
  const StreamHandle slow = machine.stream();
  const StreamHandle fast = machine.stream();
  const EventHandle event = machine.event();
  CHECK_OK(machine->wait_event(fast, event));  // never recorded: nothing to wait for
  CHECK_OK(machine.busy(slow, 100, 1));
  CHECK_OK(machine->record_event(event, slow));
  CHECK_OK(machine->wait_event(fast, event));
  CHECK_OK(machine.busy(slow, 10000, 1));
  CHECK_OK(machine->record_event(event, slow));
  CHECK_OK(machine->destroy_event(event));
  CHECK_OK(machine.wait(fast));
  CHECK(machine->now_us() < 1000);
  CHECK_FAILS(machine->wait_event(fast, event), Code::invalid_value, "does not exist");
}

TEST(work_of_a_destroyed_stream_completes) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  int calls = 0;
  CHECK_OK(machine->host_function(stream, count_up, &calls));
  CHECK_OK(machine->destroy_stream(stream));
  CHECK_FAILS(machine.wait(stream), Code::invalid_value, "does not exist");
  CHECK_OK(machine->drain());
  CHECK_EQUAL(calls, 1);
}

TEST(stream_zero_belongs_to_the_current_context) {
  const Bench machine;
  ContextHandle contexts[2] = {};
  CHECK_OK(machine->primary_context(0, &contexts[0]));
  CHECK_OK(machine->primary_context(1, &contexts[1]));
  CHECK_FAILS(machine.busy(0, 1, 1), Code::invalid_value, "none is current");
  CHECK_OK(machine->set_current_context(contexts[1]));
  CHECK_OK(machine->query_default_streams(contexts[1]));
  CHECK_OK(machine.busy(0, 1000, 1));
  CHECK_OK(machine->query_default_streams(contexts[0]));
  CHECK_FAILS(machine->query_default_streams(contexts[1]), Code::not_ready, "");
  ContextHandle of_stream = 0;
  CHECK_OK(machine->stream_context(0, &of_stream));
  CHECK_EQUAL(of_stream, contexts[1]);
  CHECK_OK(machine.wait(0));
  CHECK_OK(machine->query_default_streams(contexts[1]));
  CHECK_FAILS(machine->set_current_context(99), Code::invalid_value, "no such context");
}

TEST(a_host_function_must_not_wait) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  Blocking blocking{machine.driver.get(), stream, {}, {}, {}};
  CHECK_OK(machine->host_function(stream, wait_inside, &blocking));
  CHECK_OK(machine.wait(stream));
  CHECK_FAILS(blocking.sync, Code::invalid_value, "must not wait");
  CHECK_FAILS(blocking.query, Code::invalid_value, "must not wait");
  CHECK_FAILS(blocking.drained, Code::invalid_value, "must not wait");
}

TEST(a_body_sees_what_it_depends_on) {
  for (const bool chaos : {false, true}) {
    const Bench machine(tiny(), Options{.chaos = chaos, .seed = 5});
    const StreamHandle stream = machine.stream();
    int calls = 0;
    CHECK_OK(machine->host_function(stream, count_up, &calls));
    CHECK_OK(machine->begin_body(stream, {}));
    CHECK_EQUAL(calls, 1);
    CHECK(machine->now_us() < 50);
    CHECK_OK(machine->end_body(stream, Work{"body", 1000, 4, 1, {}}));
    CHECK_OK(machine->query_stream(machine.stream()));
    CHECK_FAILS(machine->query_stream(stream), Code::not_ready, "");
    CHECK_OK(machine.wait(stream));
    CHECK(machine->now_us() > 1000);
  }
}

TEST(unfinished_work_is_released_with_the_machine) {
  int calls = 0;
  int released = 0;
  for (const bool chaos : {false, true}) {
    const Bench machine(tiny(), Options{.chaos = chaos});
    const StreamHandle a = machine.stream();
    const StreamHandle b = machine.stream();
    for (int i = 0; i < 5; ++i) {
      CHECK_OK(machine->host_work(a, nullptr, count_up, &released, Work{"never", 1, 1, 1, {}}));
      machine.order(a, b);
      CHECK_OK(machine->host_function(b, count_up, &calls));
    }
  }
  CHECK_EQUAL(calls, 0);
  CHECK_EQUAL(released, 10);
}

TEST(refused_work_is_released) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  int released = 0;
  const Work wide{"wide", 1, 17, 1, {}};
  CHECK_FAILS(machine->host_work(stream, nullptr, count_up, &released, wide), Code::invalid_value, "got 17");
  const Work none{"none", 1, 1, 0, {}};
  CHECK_FAILS(machine->host_work(stream, nullptr, count_up, &released, none), Code::invalid_value,
              "at least one wave");
  CHECK_FAILS(machine->host_work(77, nullptr, count_up, &released, none), Code::invalid_value, "stream 77");
  CHECK_EQUAL(released, 3);
  CHECK_FAILS(machine->launch({}, stream, none), Code::not_supported, "simulated machine 'tiny'");
}

TEST(an_interrupt_ends_a_wait) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  int calls = 0;
  for (int i = 0; i < 2000; ++i) CHECK_OK(machine->host_function(stream, count_up, &calls));
  const Interrupt now{[](void*) { return true; }, nullptr};
  CHECK_FAILS(machine->synchronize_stream(stream, now), Code::interrupted, "signal");
  CHECK(calls > 0 && calls < 2000);
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(calls, 2000);
}

TEST(a_machine_needs_a_sound_description) {
  std::shared_ptr<SimDriver> driver;
  MachineSpec spec = tiny();
  spec.devices[1].sm_count = 0;
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value, "device 1 needs at least one SM");
  spec = tiny();
  spec.links.clear();
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value, "links to and from the host");
  spec = tiny();
  spec.links.push_back({0, 5, false, 1, 1});
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value, "link from 0 to 5");
  CHECK(driver == nullptr);
  const Bench machine;
  DeviceProperties properties;
  CHECK_FAILS(machine->device_properties(2, &properties), Code::invalid_device, "devices 0 to 1: got 2");
  CHECK_OK(machine->device_properties(1, &properties));
  CHECK_EQUAL(properties.sm_count, 16);
}

int main() { return check::run_all(); }
