// Graphs on the simulated machine: what is recorded, how it is laid on lanes, and what it costs.
#include <random>

#include "driver/sim/graphs.hpp"
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

void count_up(void* argument) { ++*static_cast<int*>(argument); }

// A machine whose graphs cost what was measured.
MachineSpec measured(int devices = 1) {
  MachineSpec spec = h200(devices);
  spec.costs.graph_node = 1;
  spec.costs.graph_instantiate_node = 5;
  spec.costs.graph_launch = 3;
  spec.costs.graph_launch_node = 0.012;
  spec.costs.graph_launch_edge = 0.9;
  return spec;
}

// A graph that is being recorded on some streams.
struct Recording {
  const Bench& machine;
  std::vector<StreamHandle> streams;
  GraphHandle graph = 0;

  Recording(const Bench& on_machine, std::vector<StreamHandle> on_streams)
      : machine(on_machine), streams(std::move(on_streams)) {
    CHECK_OK(machine->create_graph(&graph));
    CHECK_OK(machine->begin_capture(graph, streams[0]));
    for (std::size_t i = 1; i < streams.size(); ++i) CHECK_OK(machine->join_capture(streams[0], streams[i]));
  }
  // Work that takes a microsecond on one SM, behind `after`.
  NodeHandle work(std::vector<NodeHandle> after, int stream = 0, std::string_view symbol = "work",
                  std::initializer_list<Access> accesses = {}) const {
    CHECK_OK(machine->set_capture_dependencies(streams[stream], after));
    CHECK_OK(machine.work(streams[stream], symbol, accesses));
    return last(stream);
  }
  NodeHandle last(int stream = 0) const {
    std::vector<NodeHandle> nodes;
    CHECK_OK(machine->capture_dependencies(streams[stream], &nodes));
    CHECK_EQUAL(nodes.size(), std::size_t{1});
    return nodes.empty() ? 0 : nodes[0];
  }
  void end() const { CHECK_OK(machine->end_capture(streams[0], std::span(streams).subspan(1))); }
  GraphExecHandle instantiate() const {
    GraphExecHandle exec = 0;
    end();
    CHECK_OK(machine->instantiate_graph(graph, &exec));
    return exec;
  }
};

// The layout of nodes with these edges, all of one context.
Layout layout_of(const std::vector<std::vector<std::uint32_t>>& edges) {
  Nodes nodes;
  for (const auto& after : edges) {
    auto node = std::make_shared<Node>();
    node->kind = OperationKind::work;
    node->context = 1;
    node->after = after;
    nodes.push_back(std::move(node));
  }
  return lay_out(nodes);
}

std::vector<std::uint32_t> lanes_of(const Layout& layout) {
  std::vector<std::uint32_t> lanes;
  for (const Step& step : layout.steps) lanes.push_back(step.lane);
  return lanes;
}

// Addresses are handed out again once others of that size have been freed.
void allocate_at(const Bench& machine, Address wanted, std::size_t nbytes, StreamHandle stream) {
  for (int tries = 0; tries < 100; ++tries) {
    const Address got = machine.memory(nbytes, stream);
    if (got == wanted) return;
    CHECK_OK(machine->free_device(0, got, stream));
    CHECK_OK(machine.wait(stream));
  }
  CHECK(!"an address is handed out again");
}

struct Launched {
  double submit_us = 0;
  double done_us = 0;
};

Launched launch(const Bench& machine, GraphExecHandle exec, StreamHandle stream) {
  const double began = machine->now_us();
  CHECK_OK(machine->launch_graph(exec, stream));
  const double submitted = machine->now_us();
  CHECK_OK(machine.wait(stream));
  return {submitted - began, machine->now_us() - began - machine->spec().costs.synchronize};
}

}  // namespace

// ---- Lanes ----

TEST(a_chain_takes_one_lane) {
  const Layout layout = layout_of({{}, {0}, {1}, {2}});
  CHECK_EQUAL(layout.lanes.size(), std::size_t{1});
  CHECK(layout.leaves == std::vector<std::uint32_t>{3});
  CHECK(!layout.steps[0].recorded && layout.steps[3].recorded);
}

TEST(what_is_behind_a_join_takes_up_its_lanes) {
  // Three times: one node, four behind it, one behind all of them.
  std::vector<std::vector<std::uint32_t>> edges{{}};
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::uint32_t first = 5 * round;
    for (int i = 0; i < 4; ++i) edges.push_back({first});
    edges.push_back({first + 1, first + 2, first + 3, first + 4});
  }
  CHECK_EQUAL(layout_of(edges).lanes.size(), std::size_t{4});
}

TEST(lanes_give_no_order_beyond_the_edges) {
  // Node 3 is behind 0 and 1 only, so it must not follow 2, whose lane is as free.
  CHECK(lanes_of(layout_of({{}, {}, {}, {0, 1}})) == (std::vector<std::uint32_t>{0, 1, 2, 0}));
  // Node 4 could take node 1's lane through node 3, but is not behind it.
  CHECK(lanes_of(layout_of({{}, {}, {0}, {1, 2}, {0}, {3}})) ==
        (std::vector<std::uint32_t>{0, 1, 0, 1, 2, 1}));
}

TEST(every_order_between_nodes_comes_from_edges) {
  // Random graphs: the order that lanes and records give is the one that edges give, neither less nor more.
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t count = 1 + random() % 40;
    std::vector<std::vector<std::uint32_t>> edges(count);
    for (std::uint32_t at = 1; at < count; ++at) {
      const std::uint32_t wanted = random() % 4;
      for (std::uint32_t i = 0; i < wanted; ++i) edges[at].push_back(random() % at);
      edges[at] = ordered(edges[at]);
    }
    const Layout layout = layout_of(edges);
    std::vector<std::vector<bool>> by_edges(count, std::vector<bool>(count)), by_lanes = by_edges;
    std::vector<int> tail(layout.lanes.size(), -1);
    for (std::uint32_t at = 0; at < count; ++at) {
      const auto follow = [&](std::vector<std::vector<bool>>& order, std::uint32_t before) {
        order[at][before] = true;
        for (std::uint32_t i = 0; i < before; ++i)
          if (order[before][i]) order[at][i] = true;
      };
      const std::uint32_t lane = layout.steps[at].lane;
      if (tail[lane] >= 0) follow(by_lanes, static_cast<std::uint32_t>(tail[lane]));
      tail[lane] = static_cast<int>(at);
      for (const std::uint32_t before : edges[at]) {
        follow(by_edges, before);
        if (layout.steps[before].lane == lane) continue;
        CHECK(layout.steps[before].recorded);
        follow(by_lanes, before);
      }
    }
    CHECK(by_edges == by_lanes);
  }
}

// ---- Costs ----

TEST(recording_and_instantiating_cost_what_was_measured) {
  const Bench machine(measured());
  const Recording recording(machine, {machine.stream()});
  const double began = machine->now_us();
  for (int i = 0; i < 1000; ++i) CHECK_OK(machine.work(recording.streams[0], "work", {}));
  CHECK_WITHIN((machine->now_us() - began) / 1000, 0.84, 0.25);
  const double recorded = machine->now_us();
  recording.instantiate();
  CHECK_WITHIN((machine->now_us() - recorded) / 1000, 4.9, 0.1);
}

TEST(a_straight_chain_costs_the_host_almost_nothing) {
  for (const int count : {1000, 64000}) {
    const Bench machine(measured());
    const StreamHandle stream = machine.stream();
    const Recording recording(machine, {stream});
    const Work work{"work", 0.65, 132, 1, {}};
    for (int i = 0; i < count; ++i) CHECK_OK(machine->host_work(stream, nullptr, nullptr, nullptr, work));
    const GraphExecHandle exec = recording.instantiate();
    for (int round = 0; round < 2; ++round) {
      const Launched seen = launch(machine, exec, stream);
      // Measured: 10 us at 1,000 nodes, 767 us at 64,000; done in 0.63 to 0.67 us a node.
      CHECK_WITHIN(seen.submit_us, count == 1000 ? 15 : 771, 0.01);
      CHECK_WITHIN(seen.done_us / count, 0.65, 0.02);
    }
  }
}

TEST(a_mesh_costs_the_host_its_edges) {
  const Bench machine(measured());
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(machine.stream());
  const Recording recording(machine, streams);
  constexpr int steps = 500;
  std::vector<NodeHandle> before;
  for (int step = 0; step < steps; ++step) {
    std::vector<NodeHandle> now;
    for (int i = 0; i < 8; ++i) {
      std::vector<NodeHandle> after;
      if (step > 0) after = {before[i], before[(i + 1) % 8]};
      now.push_back(recording.work(after, i));
    }
    before = std::move(now);
  }
  const Launched seen = launch(machine, recording.instantiate(), streams[0]);
  CHECK_WITHIN(seen.submit_us / (8 * steps), 0.94, 0.1);
  CHECK_WITHIN(seen.done_us / (8 * steps), 0.94, 0.1);
}

// ---- What nodes do ----

TEST(independent_nodes_run_side_by_side_and_edges_order_them) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const Recording recording(machine, {stream});
  const auto busy = [&](std::vector<NodeHandle> after, std::string_view symbol) {
    CHECK_OK(machine->set_capture_dependencies(stream, after));
    CHECK_OK(machine->host_work(stream, nullptr, nullptr, nullptr, Work{symbol, 100, 8, 1, {}}));
    return recording.last();
  };
  const NodeHandle top = busy({}, "top");
  const NodeHandle left = busy({top}, "left");
  const NodeHandle right = busy({top}, "right");
  busy({left, right}, "bottom");
  machine->record_timeline(true);
  CHECK_OK(machine->launch_graph(recording.instantiate(), stream));
  CHECK_OK(machine.busy(stream, 1, 1));
  CHECK_OK(machine.wait(stream));
  const auto found = machine->timeline();
  CHECK_EQUAL(found.size(), std::size_t{5});
  CHECK_EQUAL(found[0].symbol, "top");
  CHECK_WITHIN(found[1].start_us, found[2].start_us, 0.001);
  CHECK(found[1].start_us >= found[0].end_us);
  CHECK_EQUAL(found[3].symbol, "bottom");
  CHECK(found[3].start_us >= found[1].end_us && found[3].start_us >= found[2].end_us);
  CHECK_EQUAL(found[4].symbol, "busy");
  CHECK(found[4].start_us >= found[3].end_us);
}

TEST(launches_of_one_executable_run_one_after_the_other) {
  const Bench machine(measured());
  const StreamHandle first = machine.stream();
  const StreamHandle second = machine.stream();
  const Address block = machine.memory(64, first);
  CHECK_OK(machine.wait(first));
  const Recording recording(machine, {first});
  recording.work({}, 0, "add", {{block, 64, true}});
  const GraphExecHandle exec = recording.instantiate();
  machine->record_timeline(true);
  for (const StreamHandle stream : {first, second, first, second})
    CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine->drain());
  const auto found = machine->timeline();
  CHECK_EQUAL(found.size(), std::size_t{4});
  for (std::size_t i = 1; i < found.size(); ++i) CHECK(found[i].start_us >= found[i - 1].end_us);
}

TEST(a_missing_edge_is_a_race) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const Address block = machine.memory(64, stream);
  CHECK_OK(machine.wait(stream));
  const Recording recording(machine, {stream});
  const NodeHandle first = recording.work({}, 0, "first", {{block, 64, true}});
  recording.work({first}, 0, "second", {{block, 64, false}});
  recording.work({}, 0, "third", {{block, 64, true}});
  const GraphExecHandle exec = recording.instantiate();
  CHECK_EQUAL(machine->conflicts().size(), std::size_t{0});
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_FAILS(machine.wait(stream), Code::conflict, "task 'third' (write");
  CHECK_EQUAL(machine->conflicts().size(), std::size_t{2});
}

TEST(a_failed_node_fails_the_launch_and_what_follows_until_it_is_reported) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const StreamHandle other = machine.stream();
  int calls = 0;
  const Recording recording(machine, {stream, other});
  for (int i = 0; i < 3; ++i) {
    for (const StreamHandle one : {stream, other})
      CHECK_OK(machine->host_work(one, count_up, nullptr, &calls, Work{"count", 1, 1, 1, {}}));
  }
  const GraphExecHandle exec = recording.instantiate();
  machine->order_fault(FaultKind::launch, 3, Code::failed);
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_FAILS(machine.wait(stream), Code::failed, "task 'count' failed on stream");
  CHECK_EQUAL(calls, 4);
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(calls, 10);
  CHECK_OK(machine->drain());
  CHECK_OK(machine->destroy_graph_exec(exec));
}

TEST(a_lost_device_is_reported_and_everything_can_be_given_back) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const Recording recording(machine, {stream});
  recording.work({});
  const GraphExecHandle exec = recording.instantiate();
  machine->order_fault(FaultKind::launch, 1, Code::device_lost);
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_FAILS(machine.wait(stream), Code::device_lost, "device 0 was lost");
  CHECK_FAILS(machine->launch_graph(exec, stream), Code::device_lost, "device 0 was lost");
  CHECK_OK(machine->destroy_graph_exec(exec));
  CHECK_OK(machine->destroy_graph(recording.graph));
  CHECK_EQUAL(machine->live_graphs(), std::size_t{0});
}

// ---- Host code ----

TEST(host_code_is_released_once_graph_and_executables_are_gone) {
  for (const bool graph_first : {true, false}) {
    const Bench machine(measured());
    const StreamHandle stream = machine.stream();
    int released = 0;
    const Recording recording(machine, {stream});
    CHECK_OK(machine->host_work(stream, nullptr, count_up, &released, Work{"work", 1, 1, 1, {}}));
    const GraphExecHandle exec = recording.instantiate();
    for (int i = 0; i < 3; ++i) CHECK_OK(machine->launch_graph(exec, stream));
    if (graph_first) CHECK_OK(machine->destroy_graph(recording.graph));
    CHECK_FAILS(machine->destroy_graph_exec(exec), Code::invalid_value, "is at work");
    CHECK_OK(machine.wait(stream));
    CHECK_OK(machine->destroy_graph_exec(exec));
    CHECK_EQUAL(released, graph_first ? 1 : 0);
    if (!graph_first) CHECK_OK(machine->destroy_graph(recording.graph));
    CHECK_EQUAL(released, 1);
    CHECK_EQUAL(machine->live_graphs(), std::size_t{0});
  }
}

TEST(host_code_is_released_with_the_machine) {
  int released = 0;
  {
    const Bench machine(measured());
    const Recording recording(machine, {machine.stream()});
    CHECK_OK(machine->host_work(recording.streams[0], nullptr, count_up, &released, Work{}));
    CHECK_OK(machine->launch_graph(recording.instantiate(), recording.streams[0]));
  }
  CHECK_EQUAL(released, 1);
}

TEST(an_update_keeps_what_launches_at_work_still_use) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  int released = 0;
  int calls[2] = {0, 0};
  const auto record = [&](int* count) {
    const Recording recording(machine, {stream});
    CHECK_OK(machine->host_work(stream, count_up, nullptr, count, Work{"count", 1, 1, 1, {}}));
    CHECK_OK(machine->host_work(stream, nullptr, count_up, &released, Work{"count", 1, 1, 1, {}}));
    return recording;
  };
  const Recording before = record(&calls[0]);
  const GraphExecHandle exec = before.instantiate();
  const Recording after = record(&calls[1]);
  after.end();
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine->destroy_graph(before.graph));
  bool fits = false;
  CHECK_OK(machine->update_graph_exec(exec, after.graph, &fits));
  CHECK(fits);
  CHECK_EQUAL(released, 0);
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(calls[0], 1);
  CHECK_EQUAL(calls[1], 1);
  CHECK_OK(machine->update_graph_exec(exec, after.graph, &fits));
  CHECK_EQUAL(released, 1);
}

TEST(a_machine_that_does_not_execute_only_moves_the_clock) {
  for (const bool execute : {true, false}) {
    const Bench machine(measured(), Options{.execute = execute});
    const StreamHandle stream = machine.stream();
    int calls = 0;
    int host_calls = 0;
    const Recording recording(machine, {stream});
    CHECK_OK(machine->host_work(stream, count_up, nullptr, &calls, Work{"count", 50, 1, 1, {}}));
    CHECK_OK(machine->host_function(stream, count_up, &host_calls));
    const GraphExecHandle exec = recording.instantiate();
    for (int i = 0; i < 5; ++i) CHECK(launch(machine, exec, stream).done_us >= 50);
    CHECK_EQUAL(calls, execute ? 5 : 0);
    CHECK_EQUAL(host_calls, 5);
  }
}

TEST(bodies_that_are_measured_are_recorded_all_the_same) {
  const Bench machine(measured(), Options{.measure_bodies = true});
  const StreamHandle stream = machine.stream();
  int calls = 0;
  const Recording recording(machine, {stream});
  CHECK_OK(machine->host_work(stream, count_up, nullptr, &calls, Work{"count", 1, 1, 1, {}}));
  CHECK_EQUAL(calls, 0);
  launch(machine, recording.instantiate(), stream);
  CHECK_EQUAL(calls, 1);
}

// ---- Partitions ----

TEST(nodes_stay_on_the_sms_of_the_stream_that_recorded_them) {
  const Bench machine(measured());
  const Cut cut(machine, 16);
  const ContextHandle small = context_of(machine, {cut.groups[0]});
  const ContextHandle large = context_of(machine, {cut.groups[1], cut.groups[2]});
  const StreamHandle plain = machine.stream();
  const std::vector<StreamHandle> streams{stream_of(machine, small), stream_of(machine, large)};
  const Recording recording(machine, streams);
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(machine.busy(streams[i], 1, 40), Code::invalid_value, "can use 1 to");
    CHECK_OK(machine.busy(streams[i], 10, 0));
  }
  const GraphExecHandle exec = recording.instantiate();
  machine->record_timeline(true);
  CHECK_OK(machine->launch_graph(exec, plain));
  CHECK_OK(machine.wait(plain));
  const auto found = machine->timeline();
  CHECK_EQUAL(found.size(), std::size_t{2});
  CHECK_EQUAL(found[0].sms + found[1].sms, 48);
  for (const StreamHandle stream : streams) CHECK_OK(machine->destroy_stream(stream));
  CHECK_OK(machine->launch_graph(exec, plain));
  CHECK_OK(machine.wait(plain));
  CHECK_OK(machine->destroy_green_context(small));
  CHECK_FAILS(machine->launch_graph(exec, plain), Code::invalid_value, "was destroyed");
}

// ---- What is refused ----

TEST(an_old_driver_names_the_version_that_records_graphs) {
  MachineSpec spec = h200(1);
  spec.driver_version = 12020;
  const Bench machine(spec);
  GraphHandle graph = 0;
  CHECK_FAILS(machine->create_graph(&graph), Code::not_supported, "CUDA 12.3");
  CHECK_EQUAL(graph, GraphHandle{0});
}

TEST(memory_that_was_freed_is_named_at_the_launch) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const Address block = machine.memory(4096, stream);
  const char zero = 0;
  const Recording recording(machine, {stream});
  recording.work({});
  CHECK_FAILS(machine->fill(block, on(0), &zero, 1, 4097, stream), Code::invalid_value, "out of bounds");
  CHECK_OK(machine->fill(block, on(0), &zero, 1, 4096, stream));
  const GraphExecHandle exec = recording.instantiate();
  CHECK_OK(machine->launch_graph(exec, stream));
  CHECK_OK(machine->free_device(0, block, stream));
  CHECK_OK(machine.wait(stream));
  const std::uint64_t submitted = machine->operations();
  const char* text = "a fill of 4096 bytes, node 1 of the graph: use after free";
  CHECK_FAILS(machine->launch_graph(exec, stream), Code::invalid_value, text);
  CHECK_FAILS(machine->launch_graph(exec, stream), Code::invalid_value, "allocation #1 of 4096 bytes");
  CHECK_EQUAL(machine->operations(), submitted);
  allocate_at(machine, block, 4096, stream);
  text = "recorded with allocation #1, which was freed since; allocation #";
  CHECK_FAILS(machine->launch_graph(exec, stream), Code::invalid_value, text);
  CHECK_OK(machine.wait(stream));
}

TEST(a_capture_that_forgets_a_stream_fails_and_ends) {
  const Bench machine(measured());
  const std::vector<StreamHandle> streams{machine.stream(), machine.stream()};
  const Recording recording(machine, streams);
  GraphExecHandle exec = 0;
  CHECK_FAILS(machine->instantiate_graph(recording.graph, &exec), Code::invalid_value, "is being recorded");
  CHECK_FAILS(machine->end_capture(streams[1], {}), Code::invalid_value, "began no capture");
  CHECK_FAILS(machine->end_capture(streams[0], {}), Code::invalid_value, "names each stream");
  for (const StreamHandle stream : streams) CHECK_OK(machine.wait(stream));
  CHECK_FAILS(machine->instantiate_graph(recording.graph, &exec), Code::invalid_value, "of no use");
  CHECK_OK(machine->destroy_graph(recording.graph));
}

TEST(lanes_of_an_executable_are_no_streams_of_the_caller) {
  const Bench machine(measured());
  const StreamHandle stream = machine.stream();
  const Recording recording(machine, {stream});
  recording.work({});
  machine->record_timeline(true);
  const GraphExecHandle exec = recording.instantiate();
  launch(machine, exec, stream);
  const StreamHandle lane = machine->timeline().at(0).stream;
  CHECK(lane != stream);
  CHECK_FAILS(machine.wait(lane), Code::invalid_value, "does not exist");
}

int main() { return check::run_all(); }
