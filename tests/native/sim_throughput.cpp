// Operations a second of the simulated machine on one thread, for a few simple programs.
#include <chrono>
#include <cstdio>

#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

template <class Body>
void measure(const char* what, int operations, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%-56s %6.2f million operations a second\n", what, operations / seconds.count() / 1e6);
}

void chain(bool check) {
  const Bench machine(h200(1), Options{.check_conflicts = check});
  const StreamHandle stream = machine.stream();
  const Address a = machine.memory(4096, stream);
  const Address b = machine.memory(4096, stream);
  constexpr int count = 1000000;
  const Access accesses[] = {{a, 4096, false}, {b, 4096, true}};
  measure(check ? "work, 2 accesses, one stream, checked" : "work, 2 accesses, one stream, unchecked", count,
          [&] {
            for (int i = 0; i < count; ++i) {
              machine->host_work(stream, nullptr, nullptr, nullptr, Work{"step", 2, 0, 1, accesses}).check();
            }
            machine.wait(stream).check();
          });
}

void bodies() {
  const Bench machine(h200(1));
  const StreamHandle stream = machine.stream();
  const Address a = machine.memory(4096, stream);
  const Access access{a, 4096, true};
  constexpr int count = 1000000;
  measure("bodies (begin and end), 1 access", count, [&] {
    for (int i = 0; i < count; ++i) {
      machine->begin_body(stream, {}).check();
      machine->end_body(stream, Work{"step", 2, 0, 1, {&access, 1}}).check();
    }
    machine.wait(stream).check();
  });
}

void mesh(int width, bool partitions) {
  const Bench machine(h200(1));
  std::vector<StreamHandle> streams;
  std::vector<EventHandle> events;
  for (int i = 0; i < width; ++i) {
    streams.push_back(partitions ? stream_of(machine, context_of(machine, {Cut(machine, 8).groups[i]}))
                                 : machine.stream());
    events.push_back(machine.event());
  }
  constexpr int rounds = 300000;
  const char* what = partitions ? "the same on 8 green contexts" : "work + record + wait over 8 streams";
  measure(what, 3 * rounds, [&] {
    for (int i = 0; i < rounds; ++i) {
      const int at = i % width;
      machine.busy(streams[at], 2, 8).check();
      machine->record_event(events[at], streams[at]).check();
      machine->wait_event(streams[(at + 1) % width], events[at]).check();
    }
    machine->drain().check();
  });
}

// Kernels that wait for SMs, so that handing them out is what takes the time.
void crowd() {
  const Bench machine(h200(1));
  const Cut cut(machine, 8);
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 30; ++i)
    streams.push_back(stream_of(machine, context_of(machine, {cut.groups[i % 15]})));
  streams.push_back(machine.stream());
  constexpr int count = 300000;
  measure("work on 30 streams of 15 green contexts and a plain one", count, [&] {
    for (int i = 0; i < count; ++i) machine.busy(streams[i % 31], 100, 8, 1).check();
    machine->drain().check();
  });
}

}  // namespace

int main() {
  chain(true);
  chain(false);
  bodies();
  mesh(8, false);
  mesh(8, true);
  crowd();
  return 0;
}
