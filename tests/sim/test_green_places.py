"""SM partitions: what is granted, who holds what, what is left, and how long places hold their SMs."""

import gc
import itertools
import random

import pytest

import stf_places as stf
from stf_places._native import sm_splits

SMS = 132
WHOLE_REQUESTS = [
    ((8,), {}),
    ((1,), {}),
    ((8, 4), {}),
    ((12, 3), {}),
    ((64, 2), {}),
    ((130, 1), {}),
    ((132,), {}),
    (([8, 16, 40],), {}),
    (([104, 8, 8],), {}),
    (([64, 32, 16, 8],), {}),
    ((range(8, 33, 8),), {}),
    ((16, 5), {"exact": True}),
    ((2,), {"fine_grained": True}),
    ((3, 7), {"fine_grained": True}),
    (([6, 50, 2],), {"fine_grained": True}),
    ((10, 2), {"fine_grained": True, "exact": True}),
]
each_request = pytest.mark.parametrize(
    ("asked", "options"), WHOLE_REQUESTS, ids=lambda given: str(given).replace(" ", "")
)


@pytest.fixture(autouse=True)
def h200(machine):
    """Run on devices of 132 SMs, and see that each test leaves all of them free."""
    if any(device.sm_count != SMS for device in machine.devices):
        pytest.skip("needs devices of 132 SMs in steps of 8")
    yield machine
    gc.collect()
    for device in range(machine.device_count):
        plan = stf.plan_green_places(8, device_id=device)
        assert (len(plan.sm_counts), plan.remainder) == (15, 12), "the test left places behind"


@pytest.fixture
def collector_off():
    """Show that reference counts alone are enough."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def handles(places):
    return [place.backing_context.handle for place in places]


def sizes(places):
    return [place.sm_count for place in places]


def sms_of(machine, places):
    """Return the SM ids of places: of the machine where it can tell, else made up from their counts."""
    if machine.simulated:
        return [sm_splits.sm_ids(machine._driver, handle) for handle in handles(places)]
    first = itertools.accumulate(sizes(places), initial=0)
    return [range(start, start + count) for start, count in zip(first, sizes(places), strict=False)]


def check_disjoint(machine, places):
    """See that places have the SMs they say, each SM once, and return the SMs."""
    found = sms_of(machine, places)
    assert [len(one) for one in found] == sizes(places)
    together = list(itertools.chain(*found))
    assert len(set(together)) == len(together) <= SMS
    return set(together)


def live_contexts(machine):
    """Return the contexts of a simulated machine, primary ones included; None where nobody can tell."""
    if not machine.simulated:
        return None
    stf.plan_green_places(1)  # contexts that are no longer used go at a call
    return {handle for handle in range(1, 4000) if sm_splits.sm_ids(machine._driver, handle)}


# ---- What is granted -------------------------------------------------------------------------------------


@each_request
def test_what_is_planned_is_granted(machine, asked, options):
    plan = stf.plan_green_places(*asked, **options)
    places = stf.green_places(*asked, **options)
    assert plan.fits and places.plan == plan
    assert tuple(sizes(places)) == plan.sm_counts == plan.nearest
    assert sum(plan.sm_counts) + plan.remainder == SMS
    assert {place.device_id for place in places} == {0} and {place.kind for place in places} == {"device"}
    check_disjoint(machine, places)
    assert len(set(handles(places))) == len(set(places)) == len(places)


@each_request
def test_the_remainder_is_all_that_nobody_holds(machine, asked, options):
    places = stf.green_places(*asked, **options)
    rest = places.remainder
    if places.plan.remainder == 0:
        assert rest is None
        return
    assert rest.sm_count == places.plan.remainder
    assert len(check_disjoint(machine, [*places, rest])) == SMS


@each_request
def test_each_place_has_what_was_asked_for_or_a_little_more(asked, options):
    counts = asked[0] if len(asked) == 1 else [asked[0]] * asked[1]
    step = 2 if options.get("fine_grained") else 8
    granted = sizes(stf.green_places(*asked, **options))
    for count, one in zip(
        [counts] * len(granted) if isinstance(counts, int) else counts, granted, strict=True
    ):
        assert one == min(SMS, (count + step - 1) // step * step)


def test_as_many_as_really_fit():
    places = stf.green_places(8)
    assert (sizes(places), places.plan.remainder) == ([8] * 15, 12)


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [((12, 3), (16, 16, 16)), (([8, 20],), (8, 24)), ((130, 1), (132,)), ((1,), (8,) * 15)],
)
def test_exact_refuses_what_would_be_rounded(asked, nearest):
    text = rf"exact=True, and these counts are granted as \[{', '.join(map(str, nearest))}\]"
    with pytest.raises(stf.PartitionError, match=text):
        stf.green_places(*asked, exact=True)
    plan = stf.plan_green_places(*asked, exact=True)
    assert (plan.fits, plan.nearest, plan.remainder) == (False, nearest, SMS)
    assert stf.plan_green_places(plan.nearest, exact=True).sm_counts == nearest


@pytest.mark.parametrize("asked", [(8, 16), (133,), (64, 3), ([104, 32],), ([132, 8],)], ids=str)
def test_a_request_that_cannot_be_met_names_the_nearest_and_makes_nothing(machine, asked):
    before = live_contexts(machine)
    plan = stf.plan_green_places(*asked)
    assert not plan.fits and plan.reason and plan.remainder == SMS
    text = rf"green_places\(.*\) cannot be met: device 0 has 132 SMs.*; the nearest that can is \[{plan.nearest[0]}"
    with pytest.raises(stf.PartitionError, match=text):
        stf.green_places(*asked)
    assert live_contexts(machine) == before
    assert stf.plan_green_places(plan.nearest).sm_counts == plan.nearest


# ---- Several calls ---------------------------------------------------------------------------------------


def test_places_of_all_calls_are_disjoint(machine):
    calls = [stf.green_places(8, 3), stf.green_places(16, 2), stf.green_places([24, 8])]
    places = [place for call in calls for place in call]
    assert sizes(places) == [8, 8, 8, 16, 16, 24, 8]
    check_disjoint(machine, places)
    last = machine.device_count - 1
    if last > 0:  # another device has SMs of its own
        assert len(stf.green_places(8, device_id=last)) == 15


@pytest.mark.parametrize("seed", range(3))
def test_calls_and_releases_in_any_order_never_overlap(machine, seed):
    draw = random.Random(seed)
    held = []
    for _ in range(60):
        if held and draw.random() < 0.4:
            held.pop(draw.randrange(len(held)))
        asked = [draw.choice([8, 16, 24]) for _ in range(draw.randint(1, 3))]
        plan = stf.plan_green_places(asked)
        if plan.fits:
            held.extend(stf.green_places(asked))
        else:
            with pytest.raises(stf.PartitionError):
                stf.green_places(asked)
        check_disjoint(machine, held)
        assert stf.plan_green_places(8, 1).remainder <= SMS - sum(sizes(held))
    assert held


def test_a_later_call_draws_on_groups_that_became_free(machine):
    places = stf.green_places(8)
    with pytest.raises(stf.PartitionError):
        stf.green_places(16, 1)
    given_back = set(itertools.chain(*sms_of(machine, [places[4], places[9]])))
    del places[9], places[4]
    late = stf.green_places(16, 1)
    assert sizes(late) == [16]
    check_disjoint(machine, [*places, *late])
    if machine.simulated:
        assert set(itertools.chain(*sms_of(machine, late))) == given_back


def test_the_text_names_who_holds_what():
    first, second = stf.green_places(8, 9), stf.green_places([16, 24])
    text = (
        r"green_places\(64, n_places=1\) cannot be met: device 0 has 132 SMs, of which 11 live place\(s\) of "
        r"green_places\(8, n_places=9\) and green_places\(\[16, 24\]\) hold some, in a split into groups of 8 SMs; "
        r"let go of them, or split one of them with within=; the nearest that can is \[8\] SMs"
    )
    with pytest.raises(stf.PartitionError, match=text):
        stf.green_places(64, 1)
    del first, second
    assert stf.plan_green_places(64, 1).fits


def test_one_split_lives_at_a_time():
    place = stf.green_places(8, 1)
    with pytest.raises(stf.PartitionError, match=r"\(not fine_grained\), and one split of a device lives"):
        stf.green_places(2, 1, fine_grained=True)
    del place
    fine = stf.green_places(2, 1, fine_grained=True)
    with pytest.raises(stf.PartitionError, match=r"\(fine_grained\), and one split of a device lives"):
        stf.green_places(8, 1)
    del fine
    assert stf.plan_green_places(8, 1).fits


# ---- How long places hold SMs ----------------------------------------------------------------------------


def in_task(place, check):
    with stf.context() as ctx:
        t = ctx.task(place, ctx.token().rw())
        del place
        with t:
            check()


def in_block(place, check):
    with place:
        del place
        check()


HOLDERS = {
    "place": lambda place: place,
    "list": lambda place: [place],
    "grid": lambda place: stf.exec_place_grid.create([place, stf.exec_place.device(0)]),
    "place of a grid": lambda place: stf.exec_place_grid.create([place]).get_place(0),
    "view": stf.green_ctx_view,
    "backing context": lambda place: place.backing_context,
    "place of the backing context": lambda place: stf.exec_place.from_context(place.backing_context),
    "place of a view": lambda place: stf.exec_place.green_ctx(stf.green_ctx_view(place)),
    "place within": lambda place: stf.green_places(8, 1, within=place)[0],
}


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_sms_are_held_by_whatever_leads_to_the_place(collector_off, make):
    held = make(stf.green_places(128, 1)[0])
    assert not stf.plan_green_places(128, 1).fits
    assert held is not None
    del held
    assert stf.plan_green_places(128, 1).fits


@pytest.mark.parametrize("use", [in_task, in_block])
def test_sms_are_held_while_the_place_is_in_use(collector_off, use):
    def check():
        assert not stf.plan_green_places(128, 1).fits

    def run():
        use(stf.green_places(128, 1)[0], check)

    run()
    assert stf.plan_green_places(128, 1).fits


def test_places_go_one_by_one(collector_off):
    places = stf.green_places(8)
    for gone in range(1, 15):
        places.pop()
        plan = stf.plan_green_places(8)
        assert (len(plan.sm_counts), plan.remainder) == (gone, 12)


@pytest.mark.parametrize(
    ("asked", "options"),
    [((16, 3), {}), (([8, 24],), {}), ((8,), {}), ((6, 2), {"fine_grained": True}), ((132,), {})],
    ids=str,
)
def test_the_same_request_finds_its_contexts_again(machine, collector_off, asked, options):
    places = stf.green_places(*asked, **options)
    before, contexts = handles(places), live_contexts(machine)
    del places
    for _ in range(5):
        places = stf.green_places(*asked, **options)
        assert handles(places) == before
        del places
    assert live_contexts(machine) == contexts


def test_contexts_are_not_shared_by_different_groups(machine):
    first = stf.green_places(16, 2)
    before = handles(first)
    kept = first[0]
    del first
    second = stf.green_places(16, 1)
    assert handles(second) == before[1:] and kept not in second
    third = stf.green_places([8, 24])
    check_disjoint(machine, [kept, *second, *third])
    assert not set(handles(third)) & set(before)


def test_another_split_follows_once_the_places_are_gone(machine, collector_off):
    before = live_contexts(machine)
    for asked, options in [*WHOLE_REQUESTS, *reversed(WHOLE_REQUESTS)]:
        places = stf.green_places(*asked, **options)
        check_disjoint(machine, places)
        del places
    last = stf.green_places(64, 2)
    if machine.simulated:
        assert live_contexts(machine) == before | set(handles(last))


# ---- Splitting a place further ---------------------------------------------------------------------------


def test_places_within_inherit_the_groups(machine):
    (parent,) = stf.green_places(64, 1)
    for asked in (16, 8, [8, 24, 16]):
        plan = stf.plan_green_places(asked, within=parent)
        inner = stf.green_places(asked, within=parent)
        assert inner.plan == plan and tuple(sizes(inner)) == plan.sm_counts
        assert sum(plan.sm_counts) + plan.remainder == 64
        if machine.simulated:
            assert check_disjoint(machine, inner) <= set(sms_of(machine, [parent])[0])
        outside = stf.green_places(56, 1)
        check_disjoint(machine, [*inner, *outside])
        del inner, outside


def test_merged_groups_are_split_exactly():
    (parent,) = stf.green_places(64, 1)
    assert sizes(stf.green_places(16, within=parent)) == [16] * 4
    assert sizes(stf.green_places([32, 16, 16], within=parent)) == [32, 16, 16]
    assert stf.green_places([24, 8], within=parent).remainder.sm_count == 32


def test_a_place_can_be_split_again_and_again(machine):
    place, kept = stf.green_places(64, 1)[0], []
    for count in (48, 24, 8):
        inner = stf.green_places(count, 1, within=place)
        assert sizes(inner) == [count]
        kept.append(inner[0])
        place = inner[0]
    if machine.simulated:
        found = [set(ids) for ids in sms_of(machine, kept)]
        assert found[0] > found[1] > found[2]
    with pytest.raises(stf.PartitionError, match=r"the place has 8 SMs; the nearest that can is \[8\] SMs"):
        stf.green_places(16, 1, within=place)


def test_fine_places_within_a_coarse_one(machine):
    (parent,) = stf.green_places(16, 1)
    inner = stf.green_places(2, within=parent, fine_grained=True)
    assert 0 < sum(sizes(inner)) <= 16 and set(sizes(inner)) == {2}
    assert sum(sizes(inner)) + inner.plan.remainder == 16
    with pytest.raises(stf.PartitionError, match=r"the place has 16 SMs, of which .* hold some"):
        stf.green_places(8, 1, within=parent)


def test_places_within_keep_the_place_and_go_with_their_last_reference(collector_off):
    places = stf.green_places(64, 1)
    inner = stf.green_places(8, 2, within=places[0])
    del places
    assert not stf.plan_green_places(72, 1).fits
    inner.pop()
    assert not stf.plan_green_places(72, 1).fits
    inner.pop()
    assert stf.plan_green_places(72, 1).fits


def test_the_remainder_can_be_split_further(machine):
    places = stf.green_places(8, 3)
    inner = stf.green_places(24, within=places.remainder)
    assert len(inner) == 4 and set(sizes(inner)) == {24}
    check_disjoint(machine, [*places, *inner])


def test_within_takes_a_place_of_its_own_device(machine):
    last = machine.device_count - 1
    places = stf.green_places(16, 1, last)
    inner = stf.green_places(8, 1, within=places[0])
    assert inner[0].device_id == last
    with pytest.raises(stf.PartitionError, match=rf"within= is a place of device {last}: got device_id=7"):
        stf.green_places(8, 1, 7, within=places[0])
    for wrong in (stf.exec_place.host(), stf.exec_place.device(0), stf.exec_place_grid.create(places)):
        with pytest.raises(stf.PartitionError, match=r"within= takes places of green_places\(\): got"):
            stf.green_places(8, within=wrong)
    with pytest.raises(TypeError, match=r"within= takes places of green_places\(\): got 'x' \(str\)"):
        stf.green_places(8, within="x")


# ---- The rest of a split ---------------------------------------------------------------------------------


def test_rest_is_what_the_places_leave(machine):
    urgent = stf.green_places(8, 1)
    rest = stf.exec_place.rest(urgent)
    assert rest.sm_count == 124 and rest.device_id == 0
    assert len(check_disjoint(machine, [*urgent, rest])) == SMS
    assert stf.exec_place.rest(iter(urgent)) == rest == urgent.remainder
    assert stf.exec_place.rest([rest]) == urgent[0]


def test_rest_within_a_place_stays_within_it(machine):
    (parent,) = stf.green_places(64, 1)
    inner = stf.green_places(8, 3, within=parent)
    rest = stf.exec_place.rest(inner)
    assert rest.sm_count == 40
    if machine.simulated:
        assert check_disjoint(machine, [*inner, rest]) == set(sms_of(machine, [parent])[0])
    with pytest.raises(stf.PartitionError, match=r"rest\(\) takes places of one split"):
        stf.exec_place.rest([parent, inner[0]])


def test_rest_refuses_what_overlaps_and_what_is_no_partition():
    first, second = stf.green_places(8, 2), stf.green_places(16, 1)
    with pytest.raises(
        stf.PartitionError, match=r"overlap a live place of 16 SMs, made by green_places\(16, n_places=1\)"
    ):
        stf.exec_place.rest(first)
    assert stf.exec_place.rest([*first, *second]).sm_count == 100
    del first, second
    whole = stf.green_places(132)
    with pytest.raises(stf.PartitionError, match="these places hold all SMs of their split"):
        stf.exec_place.rest(whole)
    with pytest.raises(stf.PartitionError, match=r"rest\(\) takes one place or more: got none"):
        stf.exec_place.rest([])
    with pytest.raises(
        stf.PartitionError, match=r"rest\(\) takes places of green_places\(\): got exec_place\.host"
    ):
        stf.exec_place.rest([stf.exec_place.host()])
    with pytest.raises(TypeError, match=r"rest\(\) takes places of green_places\(\): got 8 \(int\)"):
        stf.exec_place.rest([8])


def test_the_remainder_is_shared_and_held():
    first, second = stf.green_places(8, 2), stf.green_places(16, 1)
    rest = first.remainder
    assert rest == second.remainder == first.remainder and rest.sm_count == 100
    with pytest.raises(stf.PartitionError, match=r"live place.* of .*remainder"):
        stf.green_places(8, 1)
    del rest
    assert stf.plan_green_places(8, 1).fits


def test_a_second_remainder_holds_what_became_free_since(machine):
    places = stf.green_places(8, 3)
    rest = places.remainder
    places.pop()
    more = places.remainder
    assert (rest.sm_count, more.sm_count) == (108, 8)
    assert len(check_disjoint(machine, [*places, rest, more])) == SMS


def test_there_is_no_remainder_of_a_split_that_is_gone(collector_off):
    places = stf.green_places(8, 2)
    places.clear()
    with pytest.raises(stf.PartitionError, match="the split is gone with its last place"):
        places.remainder  # noqa: B018
    assert stf.plan_green_places(8).remainder == 12
