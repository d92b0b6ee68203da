// Tagged memory: bounds, lifetime, owner, capacity.
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

TEST(errors_name_the_allocation) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Address a = machine.memory(4096, stream);
  std::vector<char> buffer(8192);
  const Address user = address_of(buffer.data());
  CHECK_FAILS(machine->copy(a, on(0), user, host, 4097, stream), Code::invalid_value,
              "reach past the end of allocation #1 of 4096 bytes on device 0");
  CHECK_FAILS(machine->copy(user, host, a + 4000, on(0), 97, stream), Code::invalid_value,
              "from offset 4000");
  CHECK_FAILS(machine->copy(a, on(1), user, host, 16, stream), Code::invalid_value,
              "was said to lie on device 1");
  CHECK_FAILS(machine->copy(a, host, user, host, 16, stream), Code::invalid_value,
              "was said to lie in host memory");
  CHECK_FAILS(machine->copy(user, on(0), a, on(0), 16, stream), Code::invalid_value,
              "belong to no allocation");
  CHECK_FAILS(machine.work(stream, "step", {{a + 8, 4096, true}}), Code::invalid_value,
              "task 'step': out of bounds");
  const int zero = 0;
  CHECK_FAILS(machine->fill(a + 1, on(0), &zero, 4, 1024, stream), Code::invalid_value, "out of bounds");
  CHECK_EQUAL(machine->operations(), std::uint64_t{0});
}

TEST(frees_are_checked) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Address a = machine.memory(4096, stream);
  CHECK_FAILS(machine->free_device(1, a, stream), Code::invalid_value,
              "allocation #1 of 4096 bytes on device 0 was freed as memory on device 1");
  CHECK_FAILS(machine->free_device(0, a + 256, stream), Code::invalid_value, "got offset 256");
  CHECK_FAILS(machine->free_host(a), Code::invalid_value, "was freed as memory in host memory");
  CHECK_OK(machine->free_device(0, a, stream));
  CHECK_FAILS(machine->free_device(0, a, stream), Code::invalid_value,
              "double free of allocation #1 of 4096 bytes");
  CHECK_FAILS(machine.work(stream, "late", {{a, 16, false}}), Code::invalid_value,
              "use after free: 16 bytes at");
  CHECK_OK(machine.wait(stream));
  CHECK_FAILS(machine.work(stream, "late", {{a, 16, false}}), Code::invalid_value, "freed allocation #1");
  CHECK_EQUAL(machine->live_allocations(), std::size_t{0});
}

TEST(freed_names_last_until_the_addresses_are_used_again) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const Address first = machine.memory(1000, stream);
  CHECK_OK(machine->free_device(0, first, stream));
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    const Address next = machine.memory(1000, stream);
    again = next == first;
    if (i < 10) CHECK(!again);
    CHECK_OK(machine->free_device(0, next, stream));
    CHECK_OK(machine.wait(stream));
  }
  CHECK(again);
}

TEST(memory_starts_as_zeros) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  for (const std::size_t nbytes : {1024, 1 << 20}) {
    for (int i = 0; i < 40; ++i) {
      const Address a = machine.memory(nbytes, stream);
      const auto* bytes = reinterpret_cast<unsigned char*>(a);
      CHECK_EQUAL(int{bytes[0]} + int{bytes[nbytes - 1]}, 0);
      CHECK_EQUAL(a % 256, Address{0});
      const unsigned char one = 1;
      CHECK_OK(machine->fill(a, on(0), &one, 1, nbytes, stream));
      CHECK_OK(machine->free_device(0, a, stream));
      CHECK_OK(machine.wait(stream));
    }
  }
}

TEST(capacity_counts_frees_in_stream_order) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  const std::size_t half = 32 << 20;
  const Address a = machine.memory(half, stream);
  const Address b = machine.memory(half, stream);
  Address c = 0;
  CHECK_FAILS(machine->allocate_device(0, 1, stream, &c), Code::out_of_memory,
              "requested 1 bytes, free 0 of 67108864 bytes");
  CHECK_OK(machine->free_device(0, a, stream));
  CHECK_EQUAL(machine->used_memory(0), 2 * half);
  // The pending free is run when room is short.
  CHECK_OK(machine->allocate_device(0, half, stream, &c));
  CHECK_EQUAL(machine->used_memory(0), 2 * half);
  std::size_t free = 1, total = 0;
  CHECK_OK(machine->memory_info(0, &free, &total));
  CHECK_EQUAL(free, std::size_t{0});
  CHECK_EQUAL(total, 2 * half);
  CHECK_OK(machine->free_device(0, b, stream));
  CHECK_OK(machine->free_device(0, c, stream));
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(machine->used_memory(0), std::size_t{0});
  CHECK_FAILS(machine->allocate_device(0, 3 * half, stream, &c), Code::out_of_memory, "free 67108864 of");
  CHECK_FAILS(machine->allocate_device(0, 0, stream, &c), Code::invalid_value, "at least 1 byte");
  CHECK_FAILS(machine->allocate_device(1, 16, stream, &c), Code::invalid_value, "of device 0");
  CHECK_OK(machine->trim_device(0));
}

TEST(host_and_managed_memory_count_on_no_device) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  Address pinned = 0, managed = 0;
  CHECK_OK(machine->allocate_host(1 << 20, &pinned));
  CHECK_OK(machine->allocate_managed(1 << 20, 1, &managed));
  CHECK_EQUAL(machine->used_memory(0) + machine->used_memory(1), std::size_t{0});
  CHECK_EQUAL(machine->live_allocations(), std::size_t{2});
  const int three = 3;
  CHECK_OK(machine->fill(pinned, host, &three, 4, 100, stream));
  CHECK_OK(machine->copy(managed, {Location::Kind::managed, 1}, pinned, host, 400, stream));
  CHECK_OK(machine.work(stream, "both", {{pinned, 400, false}, {managed, 400, true}}));
  CHECK_OK(machine.wait(stream));
  CHECK_EQUAL(reinterpret_cast<int*>(managed)[99], 3);
  CHECK_OK(machine->free_host(pinned));
  CHECK_OK(machine->free_managed(managed));
  CHECK_FAILS(machine->free_managed(managed), Code::invalid_value, "double free");
  CHECK_EQUAL(machine->conflicts().size(), std::size_t{0});
}

TEST(kernels_need_access_to_a_peer) {
  const Bench machine;
  const StreamHandle s0 = machine.stream(0);
  const StreamHandle s1 = machine.stream(1);
  const Address a = machine.memory(64, s1, 1);
  machine.order(s1, s0, 1);
  CHECK_FAILS(machine.work(s0, "remote", {{a, 64, false}}), Code::invalid_value, "enable_peer_access(0, 1)");
  CHECK_OK(machine->enable_peer_access(0, 1));
  CHECK_OK(machine->enable_peer_access(0, 1));
  CHECK_OK(machine.work(s0, "remote", {{a, 64, false}}));
}

TEST(planning_needs_no_memory) {
  const Bench machine(h200(8), Options{.execute = false});
  CHECK(!machine->executes());
  const StreamHandle stream = machine.stream();
  const std::size_t huge = std::size_t{100} << 30;
  const Address a = machine.memory(huge, stream);
  CHECK_OK(machine->copy(a, on(0), Address{4096}, host, huge, stream));
  bool ran = false;
  int released = 0;
  const auto set = [](void* flag) { *static_cast<bool*>(flag) = true; };
  CHECK_OK(machine->host_work(stream, set, nullptr, &ran, Work{"body", 1, 1, 1, {}}));
  CHECK_OK(machine->host_work(
      stream, nullptr, [](void* count) { ++*static_cast<int*>(count); }, &released,
      Work{"body", 1, 1, 1, {}}));
  CHECK_OK(machine.wait(stream));
  CHECK(!ran);
  CHECK_EQUAL(released, 1);
  Address b = 0;
  CHECK_FAILS(machine->allocate_device(0, huge, stream, &b), Code::out_of_memory, "no room");
  CHECK_FAILS(machine->copy(a + 1, on(0), Address{4096}, host, huge, stream), Code::invalid_value,
              "out of bounds");
}

TEST(untouched_memory_costs_nothing) {
  const Bench machine(h200(8));
  for (int device = 0; device < 8; ++device) {
    const StreamHandle stream = machine.stream(device);
    const Address a = machine.memory(std::size_t{100} << 30, stream, device);
    reinterpret_cast<char*>(a)[std::size_t{99} << 30] = 1;
  }
  CHECK_EQUAL(machine->live_allocations(), std::size_t{8});
}

int main() { return check::run_all(); }
