// Ordered faults: where they are reported and what they keep from running.
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

void count_up(void* argument) { ++*static_cast<int*>(argument); }

}  // namespace

TEST(allocation_and_event_faults_are_reported_at_the_call) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const EventHandle event = machine.event();
  Address a = 0;
  machine->order_fault(FaultKind::allocation, 2, Code::out_of_memory);
  CHECK_OK(machine->allocate_device(0, 64, stream, &a));
  CHECK_FAILS(machine->allocate_host(64, &a), Code::out_of_memory, "ordered fault");
  CHECK_OK(machine->allocate_host(64, &a));
  machine->order_fault(FaultKind::event, 1, Code::failed);
  CHECK_FAILS(machine->record_event(event, stream), Code::failed,
              "record_event failed: failed: an ordered fault");
  CHECK_OK(machine->record_event(event, stream));
  CHECK_OK(machine->drain());
}

TEST(a_failed_task_stops_its_stream_until_it_is_reported) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const StreamHandle dependent = machine.stream();
  const StreamHandle other = machine.stream();
  int calls = 0, released = 0, others = 0;
  machine->order_fault(FaultKind::launch, 1, Code::failed);
  CHECK_OK(machine->host_work(stream, count_up, nullptr, &calls, Work{"culprit", 1, 1, 1, {}}));
  CHECK_OK(machine->host_function(stream, count_up, &calls));
  CHECK_OK(machine->host_work(stream, nullptr, count_up, &released, Work{"next", 1, 1, 1, {}}));
  machine.order(stream, dependent);
  CHECK_OK(machine->host_function(dependent, count_up, &calls));
  CHECK_OK(machine->host_function(other, count_up, &others));
  CHECK_OK(machine.wait(other));
  CHECK_FAILS(machine.wait(stream), Code::failed, "task 'culprit' failed on stream");
  CHECK_FAILS(machine.wait(dependent), Code::failed, "task 'culprit'");
  CHECK_EQUAL(calls, 0);
  CHECK_EQUAL(released, 1);
  CHECK_EQUAL(others, 1);
  // Reported: what comes afterwards runs.
  CHECK_OK(machine->host_function(stream, count_up, &calls));
  CHECK_OK(machine->host_function(dependent, count_up, &calls));
  CHECK_OK(machine->drain());
  CHECK_EQUAL(calls, 2);
}

TEST(an_event_carries_the_failure) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const EventHandle event = machine.event();
  std::vector<char> from(64, 1), to(64, 0);
  machine->order_fault(FaultKind::copy, 1, Code::invalid_value);
  CHECK_OK(machine->copy(address_of(to.data()), host, address_of(from.data()), host, 64, stream));
  CHECK_OK(machine->record_event(event, stream));
  CHECK_FAILS(machine->query_event(event), Code::invalid_value, "a copy of 64 bytes failed");
  CHECK_FAILS(machine->synchronize_event(event, {}), Code::invalid_value, "a copy of 64 bytes failed");
  CHECK_EQUAL(int{to[0]}, 0);
  CHECK_OK(machine.wait(stream));  // told already
}

TEST(a_body_reports_what_it_depends_on) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  int calls = 0;
  machine->order_fault(FaultKind::host_function, 2, Code::failed);
  CHECK_OK(machine->host_function(stream, count_up, &calls));
  CHECK_OK(machine->host_function(stream, count_up, &calls));
  CHECK_FAILS(machine->begin_body(stream, {}), Code::failed, "a host function failed");
  CHECK_EQUAL(calls, 1);
  machine->order_fault(FaultKind::launch, 1, Code::failed);
  CHECK_OK(machine->begin_body(stream, {}));
  CHECK_OK(machine->end_body(stream, Work{"body", 1, 1, 1, {}}));
  CHECK_FAILS(machine.wait(stream), Code::failed, "task 'body' failed");
}

TEST(a_lost_device_stays_lost) {
  const Bench machine;
  const StreamHandle stream = machine.stream(0);
  const StreamHandle sibling = machine.stream(0);
  const StreamHandle elsewhere = machine.stream(1);
  const EventHandle event = machine.event(0);
  int calls = 0, released = 0, survivors = 0;
  machine->order_fault(FaultKind::launch, 1, Code::device_lost);
  CHECK_OK(machine->host_work(stream, count_up, nullptr, &calls, Work{"illegal", 1, 1, 1, {}}));
  CHECK_OK(machine->record_event(event, stream));
  CHECK_OK(machine->host_work(sibling, nullptr, count_up, &released, Work{"next", 1, 1, 1, {}}));
  CHECK_OK(machine->host_function(sibling, count_up, &calls));
  CHECK_OK(machine->host_function(elsewhere, count_up, &survivors));
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(machine.wait(sibling), Code::device_lost, "device 0 was lost: task 'illegal' failed");
    CHECK_FAILS(machine->synchronize_event(event, {}), Code::device_lost, "task 'illegal'");
  }
  CHECK_EQUAL(machine.wait(stream).failure().device, 0);
  Address a = 0;
  std::size_t free = 0, total = 0;
  ContextHandle context = 0;
  StreamHandle made = 0;
  CHECK_FAILS(machine->allocate_device(0, 64, stream, &a), Code::device_lost, "allocate_device failed");
  CHECK_FAILS(machine->memory_info(0, &free, &total), Code::device_lost, "");
  CHECK_OK(machine->primary_context(1, &context));
  CHECK_FAILS(machine->primary_context(0, &context), Code::device_lost, "");
  CHECK_FAILS(machine->create_stream(1, 0, &made), Code::device_lost, "");
  CHECK_FAILS(machine->record_event(event, stream), Code::device_lost, "");
  CHECK_FAILS(machine->host_function(stream, count_up, &calls), Code::device_lost, "");
  CHECK_OK(machine->destroy_event(event));
  CHECK_OK(machine->destroy_stream(stream));
  CHECK_OK(machine.wait(elsewhere));
  CHECK_FAILS(machine->drain(), Code::device_lost, "");
  CHECK_EQUAL(calls, 0);
  CHECK_EQUAL(released, 1);
  CHECK_EQUAL(survivors, 1);
}

int main() { return check::run_all(); }
