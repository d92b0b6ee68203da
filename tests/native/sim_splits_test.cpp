// Splitting SMs: what an H200 was measured to grant, and the rule behind it.
#include <numeric>

#include "driver/sim/sm_sets.hpp"
#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

struct Row {
  int asked, asked_groups, groups, sm_count, left;
};

// shared/facts/h200_split.json, in its order.
constexpr Row measured[] = {
    {2, 1, 1, 8, 124},   {2, 2, 2, 8, 116},   {2, 4, 4, 8, 100},   {2, 8, 8, 8, 68},    {2, 11, 11, 8, 44},
    {2, 15, 15, 8, 12},  {2, 16, 15, 8, 12},  {2, 20, 15, 8, 12},  {4, 1, 1, 8, 124},   {4, 2, 2, 8, 116},
    {4, 4, 4, 8, 100},   {4, 8, 8, 8, 68},    {4, 11, 11, 8, 44},  {4, 15, 15, 8, 12},  {4, 16, 15, 8, 12},
    {4, 20, 15, 8, 12},  {6, 1, 1, 8, 124},   {6, 2, 2, 8, 116},   {6, 4, 4, 8, 100},   {6, 8, 8, 8, 68},
    {6, 11, 11, 8, 44},  {6, 15, 15, 8, 12},  {6, 16, 15, 8, 12},  {6, 20, 15, 8, 12},  {8, 1, 1, 8, 124},
    {8, 2, 2, 8, 116},   {8, 4, 4, 8, 100},   {8, 8, 8, 8, 68},    {8, 11, 11, 8, 44},  {8, 15, 15, 8, 12},
    {8, 16, 15, 8, 12},  {10, 1, 1, 16, 116}, {10, 2, 2, 16, 100}, {10, 4, 4, 16, 68},  {10, 8, 8, 16, 4},
    {10, 11, 8, 16, 4},  {12, 1, 1, 16, 116}, {12, 2, 2, 16, 100}, {12, 4, 4, 16, 68},  {12, 8, 8, 16, 4},
    {12, 11, 8, 16, 4},  {16, 1, 1, 16, 116}, {16, 2, 2, 16, 100}, {16, 4, 4, 16, 68},  {16, 8, 8, 16, 4},
    {20, 1, 1, 24, 108}, {20, 2, 2, 24, 84},  {20, 4, 4, 24, 36},  {22, 1, 1, 24, 108}, {22, 2, 2, 24, 84},
    {22, 4, 4, 24, 36},  {24, 1, 1, 24, 108}, {24, 2, 2, 24, 84},  {24, 4, 4, 24, 36},  {32, 1, 1, 32, 100},
    {32, 2, 2, 32, 68},  {32, 4, 4, 32, 4},   {33, 1, 1, 40, 92},  {33, 2, 2, 40, 52},  {33, 4, 3, 40, 12},
    {44, 1, 1, 48, 84},  {44, 2, 2, 48, 36},  {64, 1, 1, 64, 68},  {64, 2, 2, 64, 4},   {66, 1, 1, 72, 60},
    {66, 2, 1, 72, 60},  {72, 1, 1, 72, 60},  {124, 1, 1, 128, 4}, {132, 1, 1, 132, 0}};

// What as many groups as fit are, for counts up to `asked` that are above those of the row before.
constexpr Row as_many_as_fit[] = {
    {8, 0, 15, 8, 12},   {16, 0, 8, 16, 4},  {24, 0, 5, 24, 12},   {32, 0, 4, 32, 4},    {40, 0, 3, 40, 12},
    {48, 0, 2, 48, 36},  {56, 0, 2, 56, 20}, {64, 0, 2, 64, 4},    {72, 0, 1, 72, 60},   {80, 0, 1, 80, 52},
    {88, 0, 1, 88, 44},  {96, 0, 1, 96, 36}, {104, 0, 1, 104, 28}, {112, 0, 1, 112, 20}, {120, 0, 1, 120, 12},
    {128, 0, 1, 128, 4}, {132, 0, 1, 132, 0}};

struct Split {
  std::vector<SmResource> groups;
  SmResource left;
};

SmResource whole_of(const Bench& machine, int device = 0) {
  SmResource whole;
  CHECK_OK(machine->device_sms(device, &whole));
  return whole;
}

Split split(const Bench& machine, const SmResource& whole, int sm_count, int groups, bool fine = false) {
  Split made;
  CHECK_OK(machine->split_sms(whole, sm_count, groups, fine, &made.groups, &made.left));
  return made;
}

const std::vector<int>& ids_of(const SmResource& resource) {
  return static_cast<const SmSet*>(resource.opaque.get())->ids;
}

void check_row(const Bench& machine, int asked, int asked_groups, const Row& row) {
  const Split made = split(machine, whole_of(machine), asked, asked_groups);
  CHECK_EQUAL(made.groups.size(), static_cast<std::size_t>(row.groups));
  for (const SmResource& group : made.groups) {
    CHECK_EQUAL(group.sm_count, row.sm_count);
    CHECK_EQUAL(ids_of(group).size(), static_cast<std::size_t>(row.sm_count));
  }
  CHECK_EQUAL(made.left.sm_count, row.left);
}

// A green context of `sm_count` SMs that were split off together.
SmResource own_sms(const Bench& machine, int sm_count) {
  ContextHandle context = 0;
  SmResource own;
  CHECK_OK(machine->create_green_context(0, split(machine, whole_of(machine), sm_count, 1).groups, nullptr,
                                         &context));
  CHECK_OK(machine->context_sms(context, &own));
  CHECK_EQUAL(own.sm_count, sm_count);
  return own;
}

}  // namespace

TEST(measured_splits_come_out) {
  const Bench machine(h200(1));
  for (const Row& row : measured) check_row(machine, row.asked, row.asked_groups, row);
}

TEST(all_counts_are_granted_as_measured) {
  const Bench machine(h200(1));
  int asked = 1;
  for (const Row& row : as_many_as_fit) {
    for (; asked <= row.asked; ++asked) {
      check_row(machine, asked, 0, row);
      check_row(machine, asked, 100, row);
    }
  }
  CHECK_EQUAL(asked, 133);
}

TEST(without_coscheduling_every_even_count_can_be_had) {
  const Bench machine(h200(1));
  for (int asked = 1; asked <= 132; ++asked) {
    const int even = asked + asked % 2;
    const Split made = split(machine, whole_of(machine), asked, 0, true);
    CHECK_EQUAL(made.groups.size(), static_cast<std::size_t>(132 / even));
    CHECK_EQUAL(made.groups[0].sm_count, even);
    CHECK_EQUAL(made.left.sm_count, 132 % even);
  }
  CHECK_EQUAL(split(machine, whole_of(machine), 2, 0, true).groups.size(), std::size_t{66});
}

TEST(groups_take_ascending_ids) {
  const Bench machine(h200(1));
  for (const bool fine : {false, true}) {
    for (const int asked : {2, 8, 12, 64}) {
      const Split made = split(machine, whole_of(machine), asked, 0, fine);
      std::vector<int> all;
      for (const SmResource& group : made.groups) {
        all.insert(all.end(), ids_of(group).begin(), ids_of(group).end());
      }
      if (made.left.sm_count != 0) all.insert(all.end(), ids_of(made.left).begin(), ids_of(made.left).end());
      std::vector<int> expected(132);
      std::iota(expected.begin(), expected.end(), 0);
      CHECK(all == expected);
    }
  }
}

TEST(a_device_knows_its_smallest_partition_and_groups_do_not) {
  const Bench machine(h200(2));
  const SmResource whole = whole_of(machine, 1);
  CHECK_EQUAL(whole.device, 1);
  CHECK_EQUAL(whole.sm_count, 132);
  CHECK_EQUAL(whole.min_partition, 8);
  CHECK_EQUAL(whole.alignment, 8);
  const Split made = split(machine, whole, 64, 0);
  CHECK_EQUAL(made.groups[0].device, 1);
  CHECK_EQUAL(made.groups[0].min_partition, 0);
  CHECK_EQUAL(made.left.alignment, 0);
  const Split nothing_left = split(machine, whole, 132, 1);
  CHECK_EQUAL(nothing_left.left.device, 1);
  CHECK_EQUAL(nothing_left.left.sm_count, 0);
  CHECK(nothing_left.left.opaque == nullptr);
  SmResource primary;
  ContextHandle context = 0;
  CHECK_OK(machine->primary_context(1, &context));
  CHECK_OK(machine->context_sms(context, &primary));
  CHECK_EQUAL(primary.sm_count, 132);
  CHECK_EQUAL(split(machine, primary, 8, 0).groups.size(), std::size_t{15});
}

TEST(splits_that_cannot_be_are_refused) {
  const Bench machine(h200(1));
  const Bench other(h200(1));
  const SmResource whole = whole_of(machine);
  const Split made = split(machine, whole, 64, 1);
  Split kept = made;
  const auto refused = [&](const SmResource& of, int sm_count, int groups, const char* part) {
    CHECK_FAILS(machine->split_sms(of, sm_count, groups, false, &kept.groups, &kept.left),
                Code::invalid_value, part);
    CHECK_EQUAL(kept.groups.size(), std::size_t{1});
    CHECK_EQUAL(kept.left.sm_count, 68);
  };
  refused(whole, 133, 1, "1 to 132 SMs can be split off: got 133");
  refused(whole, 0, 1, "got 0");
  refused(whole, 8, -1, "number of groups");
  refused(made.groups[0], 8, 1, "got a group of a split");
  refused(made.left, 8, 1, "or what one left");
  refused(SmResource{}, 8, 1, "got an empty one");
  refused(whole_of(other), 8, 1, "another simulated machine");
}

TEST(what_is_left_has_no_whole_coscheduling_group) {
  const Bench machine(h200(1));
  const Split made = split(machine, whole_of(machine), 8, 0);
  ContextHandle context = 0;
  SmResource own;
  CHECK_OK(machine->create_green_context(0, {&made.left, 1}, nullptr, &context));
  CHECK_OK(machine->context_sms(context, &own));
  CHECK_EQUAL(own.sm_count, 12);
  CHECK_EQUAL(ids_of(own).front(), 120);
  Split again;
  CHECK_FAILS(machine->split_sms(own, 8, 1, false, &again.groups, &again.left), Code::invalid_value,
              "without co-scheduling");
  CHECK_EQUAL(split(machine, own, 8, 1, true).left.sm_count, 4);
}

TEST(a_contexts_own_sms_are_split_by_the_same_rule_with_a_loss) {
  const Bench machine(h200(1));
  const SmResource own = own_sms(machine, 64);
  CHECK_EQUAL(own.min_partition, 8);
  for (const int groups : {0, 4, 9}) {
    const Split used_up = split(machine, own, 16, groups);
    CHECK_EQUAL(used_up.groups.size(), std::size_t{4});
    CHECK_EQUAL(used_up.groups[3].sm_count, 14);
    CHECK_EQUAL(used_up.left.sm_count, 8);
  }
  const auto check = [&](const Split& made, std::size_t groups, int sm_count, int left) {
    CHECK_EQUAL(made.groups.size(), groups);
    CHECK_EQUAL(made.groups[0].sm_count, sm_count);
    CHECK_EQUAL(made.left.sm_count, left);
  };
  check(split(machine, own, 16, 2), 2, 16, 32);
  check(split(machine, own, 64, 1), 1, 64, 0);
  check(split(machine, own, 8, 0), 8, 8, 0);
  check(split(machine, own, 24, 0), 2, 24, 16);
  check(split(machine, own, 16, 0, true), 4, 16, 0);
}

TEST(unequal_groups_come_with_cuda_13_1) {
  MachineSpec spec = h200(1);
  const Bench early(spec);
  spec.driver_version = 13010;
  const Bench machine(spec);
  Split made;
  const auto ask = [&](const Bench& of, std::vector<SmGroup> groups) {
    return of->split_sms_unequally(whole_of(of), groups, &made.groups, &made.left);
  };
  CHECK_FAILS(ask(early, {{8, 0}}), Code::not_supported, "comes with CUDA 13.1");
  CHECK_OK(ask(machine, {{64, 16}, {20, 0}, {8, 8}, {0, 0}}));
  const int expected[] = {64, 24, 8, 32};
  int next = 0;
  CHECK_EQUAL(made.groups.size(), std::size_t{4});
  for (std::size_t i = 0; i < made.groups.size(); ++i) {
    CHECK_EQUAL(made.groups[i].sm_count, expected[i]);
    CHECK_EQUAL(ids_of(made.groups[i]).front(), next);
    next += expected[i];
  }
  CHECK_EQUAL(made.left.sm_count, 4);
  CHECK_FAILS(ask(machine, {{128, 0}, {8, 0}}), Code::invalid_value,
              "group 1 needs 8 of the 4 that are left");
  CHECK_FAILS(ask(machine, {{132, 0}, {0, 0}}), Code::invalid_value, "group 1 needs 8 of the 0");
  CHECK_FAILS(ask(machine, {{16, 3}}), Code::invalid_value, "multiple of 2, at most the group's 16: got 3");
  CHECK_FAILS(ask(machine, {{16, 18}}), Code::invalid_value, "got 18");
  CHECK_FAILS(ask(machine, {{24, 16}}), Code::invalid_value, "24 SMs cannot be divided into parts of 16");
  CHECK_FAILS(ask(machine, {{133, 0}}), Code::invalid_value, "group 0: a group of 1 to 132");
  CHECK_FAILS(ask(machine, {{-1, 0}}), Code::invalid_value, "got -1");
  CHECK_FAILS(ask(machine, {}), Code::invalid_value, "got none");
  CHECK_FAILS(machine->split_sms_unequally(made.left, {}, &made.groups, &made.left), Code::invalid_value,
              "or what one left");
}

TEST(machines_without_figures_split_into_anything) {
  DeviceSpec plain;
  plain.sm_count = 10;
  SmSet whole{0, 0, SmSet::Origin::device, std::vector<int>(10)};
  std::iota(whole.ids.begin(), whole.ids.end(), 0);
  SmSplit made;
  CHECK_EQUAL(split_equally(plain, whole, 3, 0, false, &made), "");
  CHECK_EQUAL(made.groups.size(), std::size_t{3});
  CHECK_EQUAL(made.left.size(), std::size_t{1});
  plain.alignment = 4;  // two whole groups, since nothing else is said
  CHECK_EQUAL(split_equally(plain, whole, 1, 0, false, &made), "");
  CHECK_EQUAL(made.groups.size(), std::size_t{2});
}

TEST(figures_that_contradict_each_other_are_refused) {
  std::shared_ptr<SimDriver> driver;
  MachineSpec spec = h200(1);
  spec.devices[0].aligned_sms = 121;
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value,
              "aligned_sms is a multiple of alignment");
  spec = h200(1);
  spec.devices[0].resplit_loss = 9;
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value, "resplit_loss is 0 to alignment");
  spec = h200(1);
  spec.devices[0].min_partition = 133;
  CHECK_FAILS(make_sim_driver(spec, {}, &driver), Code::invalid_value, "min_partition is 0 to sm_count");
}

int main() { return check::run_all(); }
