// Green contexts: making and ending them, and what their streams share with others.
#include <thread>

#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

std::vector<int> range(int from, int to) {
  std::vector<int> ids;
  for (int id = from; id < to; ++id) ids.push_back(id);
  return ids;
}

}  // namespace

// ---- Making and ending contexts ----

TEST(a_context_has_the_sms_that_it_was_given) {
  const Bench machine(h200(2));
  const Cut cut(machine, 8, 1);
  const ContextHandle pair = context_of(machine, {cut.groups[1], cut.groups[0]}, 1);
  const ContextHandle mixed = context_of(machine, {cut.groups[2], cut.left}, 1);
  CHECK(machine->sm_ids(pair) == range(0, 16));
  std::vector<int> expected = range(16, 24);
  for (const int id : range(120, 132)) expected.push_back(id);
  CHECK(machine->sm_ids(mixed) == expected);
  ContextHandle primary = 0;
  CHECK_OK(machine->primary_context(1, &primary));
  CHECK(machine->sm_ids(primary) == range(0, 132));
  CHECK(machine->sm_ids(0).empty());
  CHECK(machine->sm_ids(mixed + 1).empty());
  int device = -1;
  SmResource sms;
  CHECK_OK(machine->context_device(mixed, &device));
  CHECK_EQUAL(device, 1);
  CHECK_OK(machine->context_sms(mixed, &sms));
  CHECK_EQUAL(sms.sm_count, 20);
  ContextHandle of_stream = 0;
  CHECK_OK(machine->stream_context(stream_of(machine, pair), &of_stream));
  CHECK_EQUAL(of_stream, pair);
}

TEST(contexts_that_cannot_be_made_are_refused) {
  const Bench machine(h200(2));
  const Cut cut(machine, 8);
  const Cut used_up(machine, 132);
  const double begin = machine->now_us();
  ContextHandle made = 77;
  const auto refused = [&](int device, std::vector<SmResource> sms, Code code, const char* part) {
    CHECK_FAILS(machine->create_green_context(device, sms, nullptr, &made), code, part);
    CHECK_EQUAL(made, ContextHandle{77});
  };
  refused(0, {}, Code::invalid_value, "needs SMs: got none");
  refused(1, {cut.groups[0]}, Code::invalid_value, "got some of device 0");
  refused(2, {cut.groups[0]}, Code::invalid_device, "got 2");
  refused(0, {cut.groups[3], cut.groups[4], cut.groups[3]}, Code::invalid_value, "got SM 24 twice");
  refused(0, {used_up.left}, Code::invalid_value, "got an empty one");
  const WorkQueues queues{4, true};
  CHECK_FAILS(machine->create_green_context(0, cut.groups, &queues, &made), Code::not_supported,
              "work queues of a context, which comes with CUDA 13.1");
  CHECK_EQUAL(machine->now_us(), begin);
}

TEST(old_drivers_have_neither_splits_nor_contexts) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  MachineSpec spec = h200(1);
  spec.driver_version = 12040;
  const Bench old(spec);
  SmResource sms;
  std::vector<SmResource> groups;
  ContextHandle primary = 0;
  CHECK_OK(old->primary_context(0, &primary));
  const char* const text = "CUDA 12.4: it does not have what green contexts need, which comes with CUDA 12.5";
  CHECK_FAILS(old->device_sms(0, &sms), Code::not_supported, text);
  CHECK_FAILS(old->context_sms(primary, &sms), Code::not_supported, text);
  CHECK_FAILS(old->split_sms(cut.left, 8, 1, false, &groups, &sms), Code::not_supported, text);
  CHECK_FAILS(old->create_green_context(0, cut.groups, nullptr, &primary), Code::not_supported, text);
  spec.driver_version = 13010;
  const Bench recent(spec);
  const Cut recent_cut(recent, 8);
  WorkQueues queues{4, true};
  CHECK_OK(recent->create_green_context(0, recent_cut.groups, &queues, &primary));
  queues.concurrency_limit = -1;
  CHECK_FAILS(recent->create_green_context(0, recent_cut.groups, &queues, &primary), Code::invalid_value,
              "concurrency limit");
}

TEST(a_context_ends_after_its_streams) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  const StreamHandle stream = stream_of(machine, context);
  CHECK_FAILS(machine->destroy_green_context(context), Code::invalid_value,
              "streams of a green context must be destroyed first: context 2 has 1");
  CHECK_OK(machine->destroy_stream(stream));
  CHECK_OK(machine->destroy_green_context(context));
  const char* const text = "context 2 was destroyed";
  int device = 0;
  SmResource sms;
  StreamHandle made = 0;
  EventHandle event = 0;
  CHECK_FAILS(machine->destroy_green_context(context), Code::invalid_value, text);
  CHECK_FAILS(machine->create_stream(context, 0, &made), Code::invalid_value, text);
  CHECK_FAILS(machine->create_event(context, false, &event), Code::invalid_value, text);
  CHECK_FAILS(machine->context_device(context, &device), Code::invalid_value, text);
  CHECK_FAILS(machine->context_sms(context, &sms), Code::invalid_value, text);
  CHECK_FAILS(machine->set_current_context(context), Code::invalid_value, text);
  CHECK_FAILS(machine->query_default_streams(context), Code::invalid_value, text);
  CHECK(machine->sm_ids(context).empty());
  CHECK(context_of(machine, {cut.groups[0]}) != context);
  ContextHandle primary = 0;
  CHECK_OK(machine->primary_context(0, &primary));
  CHECK_FAILS(machine->destroy_green_context(primary), Code::invalid_value, "primary context");
  CHECK_FAILS(machine->destroy_green_context(99), Code::invalid_value, "no such context: 99");
}

TEST(pending_work_outlives_its_context) {
  for (const bool chaos : {false, true}) {
    const Bench machine(h200(1), Options{.chaos = chaos, .seed = 3});
    machine->record_timeline(true);
    const Cut cut(machine, 8);
    const ContextHandle context = context_of(machine, {cut.groups[0]});
    const StreamHandle stream = stream_of(machine, context);
    static int runs = 0;
    runs = 0;
    for (int i = 0; i < 5; ++i) {
      const Work work{"late", 50, 0, 2, {}};
      CHECK_OK(machine->host_work(stream, [](void*) { ++runs; }, nullptr, nullptr, work));
    }
    const StreamHandle after = machine.stream();
    machine.order(stream, after);
    CHECK_OK(machine->destroy_stream(stream));
    CHECK_OK(machine->destroy_green_context(context));
    // Its SMs are still in use: a context that shares them gets them in turn.
    const StreamHandle next = stream_of(machine, context_of(machine, {cut.groups[0]}));
    CHECK_OK(machine.busy(next, 10, 0));
    CHECK_OK(machine.wait(after));
    CHECK_OK(machine->drain());
    CHECK_EQUAL(runs, 5);
    CHECK_EQUAL(machine->timeline().size(), std::size_t{6});
  }
}

TEST(a_current_context_that_was_destroyed_is_said) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  CHECK_OK(machine->set_current_context(context));
  CHECK_OK(machine.busy(0, 100, 8));
  CHECK_FAILS(machine.busy(0, 100, 9), Code::invalid_value, "1 to 8 SMs of green context 2 on device 0");
  CHECK_FAILS(machine->query_default_streams(context), Code::not_ready, "");
  CHECK_OK(machine->destroy_green_context(context));  // its default stream goes with it
  ContextHandle current = 0;
  CHECK_OK(machine->current_context(&current));
  CHECK_EQUAL(current, context);
  CHECK_FAILS(machine.busy(0, 100, 8), Code::invalid_value, "context 2 was destroyed");
  CHECK_FAILS(machine.wait(0), Code::invalid_value, "context 2 was destroyed");
  CHECK_OK(machine->drain());
  CHECK_OK(machine->set_current_context(0));
}

TEST(a_lost_device_loses_its_contexts) {
  const Bench machine(h200(2));
  const Cut cut(machine, 8);
  const Cut elsewhere(machine, 8, 1);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  const StreamHandle stream = stream_of(machine, context);
  ContextHandle made = 0;
  StreamHandle other = 0;
  SmResource sms;
  std::vector<SmResource> groups;
  machine->order_fault(FaultKind::green_context, 2, Code::out_of_memory);
  machine->order_fault(FaultKind::green_context, 3, Code::device_lost);
  context_of(machine, {cut.groups[1]});
  CHECK_FAILS(machine->create_green_context(0, cut.groups, nullptr, &made), Code::out_of_memory,
              "ordered fault");
  CHECK_FAILS(machine->create_green_context(0, cut.groups, nullptr, &made), Code::device_lost,
              "ordered fault");
  CHECK_FAILS(machine->create_green_context(0, cut.groups, nullptr, &made), Code::device_lost, "was lost");
  CHECK_FAILS(machine->create_stream(context, 0, &other), Code::device_lost, "was lost");
  CHECK_FAILS(machine.busy(stream, 1, 1), Code::device_lost, "was lost");
  CHECK_FAILS(machine->context_sms(context, &sms), Code::device_lost, "was lost");
  CHECK_FAILS(machine->device_sms(0, &sms), Code::device_lost, "was lost");
  CHECK_FAILS(machine->split_sms(cut.left, 8, 1, false, &groups, &sms), Code::device_lost, "was lost");
  context_of(machine, elsewhere.groups, 1);
  CHECK_OK(machine->destroy_stream(stream));
  CHECK_OK(machine->destroy_green_context(context));
}

// ---- What streams of green contexts share with others ----

TEST(races_between_contexts_are_found) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  const StreamHandle first = stream_of(machine, context_of(machine, {cut.groups[0]}));
  const StreamHandle second = stream_of(machine, context_of(machine, {cut.groups[1]}));
  const Address a = machine.memory(64, first);
  CHECK_OK(machine.work(first, "first", {{a, 64, true}}));
  machine.order(first, second);
  CHECK_OK(machine.work(second, "second", {{a, 64, true}}));
  CHECK(machine->conflicts().empty());
  CHECK_OK(machine.work(first, "third", {{a, 64, true}}));
  CHECK_EQUAL(machine->conflicts().size(), std::size_t{1});
}

TEST(failures_stay_with_their_stream) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  const ContextHandle context = context_of(machine, {cut.groups[0]});
  const StreamHandle struck = stream_of(machine, context);
  const StreamHandle spared = stream_of(machine, context);
  machine->order_fault(FaultKind::launch, 1, Code::failed);
  CHECK_OK(machine.busy(struck, 10, 8));
  CHECK_OK(machine.busy(spared, 10, 8));
  CHECK_OK(machine.wait(spared));
  CHECK_FAILS(machine.wait(struck), Code::failed, "ordered fault");
  CHECK_OK(machine.busy(struck, 10, 8));
  CHECK_OK(machine.wait(struck));
}

TEST(threads_make_and_end_contexts_side_by_side) {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        ContextHandle context = 0;
        StreamHandle stream = 0;
        machine->create_green_context(0, {&cut.groups[t], 1}, nullptr, &context).check();
        machine->create_stream(context, 0, &stream).check();
        for (int k = 0; k < 10; ++k) machine.busy(stream, 5, 0, 2).check();
        if (i % 2 == 0) machine.wait(stream).check();
        machine->destroy_stream(stream).check();
        machine->destroy_green_context(context).check();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_OK(machine->drain());
}

int main() { return check::run_all(); }
