"""Plans of SM partitions: what a request is granted, what is refused and with which words."""

import gc
import json
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stf_places as stf

SMS = 132


@pytest.fixture(scope="module", autouse=True)
def h200():
    with stf.use_machine("sim:h200x1") as machine:
        yield machine


@pytest.fixture
def two_devices():
    with stf.use_machine("sim:h200x2") as machine:
        yield machine


def rounded(count, fine=False):
    step = 2 if fine else 8
    return min(SMS, (count + step - 1) // step * step)


def granted(places):
    return tuple(place.sm_count for place in places)


# ---- Properties ------------------------------------------------------------------------------------------

counts = st.integers(1, 150)
uniform = st.tuples(counts, st.none() | st.integers(1, 20))
unequal = st.tuples(st.lists(st.integers(1, 140), min_size=1, max_size=8))
requests = uniform | unequal
flags = st.fixed_dictionaries({"exact": st.booleans(), "fine_grained": st.booleans()})


def asked_counts(request, plan):
    """Return the count that was asked for each granted place."""
    if len(request) == 1:
        return request[0]
    return [request[0]] * (request[1] or len(plan.sm_counts))


@settings(deadline=None, max_examples=300)
@given(requests, flags)
def test_a_plan_that_fits_is_what_was_asked_for(request, options):
    plan = stf.plan_green_places(*request, **options)
    if not plan.fits:
        assert plan.sm_counts == () and plan.remainder == SMS and plan.reason
        return
    assert sum(plan.sm_counts) + plan.remainder == SMS and plan.remainder >= 0
    assert plan.nearest == plan.sm_counts and plan.reason == ""
    asked = asked_counts(request, plan)
    assert len(asked) == len(plan.sm_counts)
    if options["exact"]:
        assert plan.sm_counts == tuple(asked)
    else:
        assert plan.sm_counts == tuple(rounded(count, options["fine_grained"]) for count in asked)


@settings(deadline=None, max_examples=300)
@given(requests, flags)
def test_the_nearest_can_be_met_as_it_is(request, options):
    plan = stf.plan_green_places(*request, **options)
    assert plan.nearest, "the whole device is free"
    again = stf.plan_green_places(plan.nearest, **options | {"exact": True})
    assert again.fits and again.sm_counts == plan.nearest


@settings(deadline=None, max_examples=100)
@given(requests, flags)
def test_places_are_what_was_planned(request, options):
    plan = stf.plan_green_places(*request, **options)
    assert stf.plan_green_places(*request, **options) == plan
    if plan.fits:
        places = stf.green_places(*request, **options)
        assert places.plan == plan and granted(places) == plan.sm_counts
    else:
        with pytest.raises(stf.PartitionError, match="cannot be met"):
            stf.green_places(*request, **options)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), requests, flags)
def test_plans_beside_live_places(held, request, options):
    first = stf.plan_green_places(held)
    if not first.fits:
        return
    places = stf.green_places(held)
    plan = stf.plan_green_places(*request, **options)
    assert sum(granted(places)) + sum(plan.sm_counts) + plan.remainder == SMS
    if plan.fits:
        assert granted(stf.green_places(*request, **options)) == plan.sm_counts
    else:
        assert plan.reason
    if plan.nearest:
        assert stf.plan_green_places(plan.nearest, **options).sm_counts == plan.nearest


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 16).map(lambda k: 8 * k), requests, flags)
def test_plans_within_a_place(size, request, options):
    (parent,) = stf.green_places(size, 1)
    plan = stf.plan_green_places(*request, within=parent, **options)
    assert sum(plan.sm_counts) + plan.remainder == size
    if plan.fits:
        assert granted(stf.green_places(*request, within=parent, **options)) == plan.sm_counts
    elif plan.nearest:
        assert stf.plan_green_places(plan.nearest, within=parent, **options).fits


@settings(deadline=None)
@given(st.integers(1, SMS), st.integers(1, 20))
def test_planning_in_any_form_is_the_same(count, places):
    plan = stf.plan_green_places(count, places)
    for form in (
        [count] * places,
        (count,) * places,
        range(count, count + 1)[:1] if places == 1 else [count] * places,
    ):
        assert stf.plan_green_places(form).sm_counts == plan.sm_counts
    assert stf.plan_green_places(np.int64(count), np.int32(places)).sm_counts == plan.sm_counts
    assert stf.plan_green_places(count for _ in range(places)).sm_counts == plan.sm_counts


def test_an_array_of_counts_is_a_sequence():
    assert stf.plan_green_places(np.array([8, 16])).sm_counts == (8, 16)
    assert stf.plan_green_places(np.array([8])).sm_counts == (8,)


# ---- What an H200 grants ---------------------------------------------------------------------------------

# Asked counts, groups that fit, SMs of each, SMs left: measured, see "split by count" of the H200's facts.
MEASURED = [
    (range(1, 9), 15, 8, 12),
    (range(9, 17), 8, 16, 4),
    (range(17, 25), 5, 24, 12),
    (range(25, 33), 4, 32, 4),
    (range(33, 41), 3, 40, 12),
    (range(41, 49), 2, 48, 36),
    (range(49, 57), 2, 56, 20),
    (range(57, 65), 2, 64, 4),
    (range(65, 73), 1, 72, 60),
    (range(121, 129), 1, 128, 4),
    (range(129, 133), 1, 132, 0),
]


@pytest.mark.parametrize(("asked", "groups", "size", "left"), MEASURED)
def test_as_many_groups_as_an_h200_grants(asked, groups, size, left):
    for count in asked:
        for places in range(1, groups + 1):
            plan = stf.plan_green_places(count, places)
            assert plan.sm_counts == (size,) * places and plan.remainder == SMS - size * places
        all_ = stf.plan_green_places(count)
        assert set(all_.sm_counts) == {size} and len(all_.sm_counts) >= groups
        assert all_.remainder == SMS - size * len(all_.sm_counts) <= left
        too_many = stf.plan_green_places(count, len(all_.sm_counts) + 1)
        assert not too_many.fits and stf.plan_green_places(too_many.nearest, exact=True).fits
        assert sum(too_many.nearest) >= sum(all_.sm_counts)


def test_the_nearest_keeps_the_number_of_places_where_that_grants_more():
    assert stf.plan_green_places(66, 2).nearest == (64, 64)
    assert stf.plan_green_places(16, 9).nearest == (16,) * 8
    assert stf.plan_green_places(8, 16).nearest == (8,) * 15
    plan = stf.plan_green_places(66, 2)
    assert plan.reason == "device 0 has 132 SMs; with fine_grained=True it can be met"


@pytest.mark.parametrize("count", range(1, SMS + 1))
def test_every_even_count_is_reached_fine_grained(count):
    plan = stf.plan_green_places(count, fine_grained=True)
    assert set(plan.sm_counts) == {rounded(count, True)}
    assert len(plan.sm_counts) == SMS // rounded(count, True)


@pytest.mark.parametrize(
    ("asked", "nearest", "reason"),
    [
        (
            (8, 16),
            (8,) * 15,
            r"device 0 has 132 SMs, 120 of them in groups of 8; with fine_grained=True it can be met$",
        ),
        ((133,), (132,), r"device 0 has 132 SMs"),
        ((1000, 3), (132,), r"device 0 has 132 SMs"),
        ((64, 3), (64, 64), r"device 0 has 132 SMs"),
        (([104, 32],), (96, 32), r"device 0 has 132 SMs"),
    ],
    ids=str,
)
def test_what_cannot_be_met(asked, nearest, reason):
    plan = stf.plan_green_places(*asked)
    assert (plan.fits, plan.sm_counts, plan.remainder, plan.nearest) == (False, (), SMS, nearest)
    assert re.search(reason, plan.reason)


# ---- A plan as a value -----------------------------------------------------------------------------------


def test_a_plan_is_a_value():
    plan = stf.plan_green_places([16, 104])
    assert plan == stf.PartitionPlan((16, 104), 12, (16, 104)) and hash(plan) == hash(
        eval(repr(plan), vars(stf))
    )
    assert eval(repr(plan), vars(stf)) == plan
    with pytest.raises(AttributeError):
        plan.remainder = 5
    assert json.loads(plan.to_json()) == {
        "sm_counts": [16, 104],
        "remainder": 12,
        "nearest": [16, 104],
        "reason": "",
    }
    assert plan.table().splitlines() == [
        "place        SMs",
        "0             16",
        "1            104",
        "remainder     12",
    ]


def test_a_plan_that_does_not_fit_shows_the_nearest():
    plan = stf.plan_green_places(72, 2)
    assert plan.table().splitlines()[1:] == ["remainder    132", "nearest    64 64"]
    found = json.loads(plan.to_json())
    assert found["sm_counts"] == [] and found["nearest"] == [64, 64] and "132 SMs" in found["reason"]
    assert "none" in stf.PartitionPlan((), 4, (), "too small").table().splitlines()[-1]


# ---- Bad input -------------------------------------------------------------------------------------------

T, P = TypeError, stf.PartitionError
INT = r"is an int: got {} \({}\)"
LIMIT = r"is {} or more, and below 1048576: got {}$"
BAD_COUNTS = [
    ((0,), P, "^sms_per_place " + LIMIT.format(1, 0)),
    ((-8,), P, "^sms_per_place " + LIMIT.format(1, -8)),
    ((1 << 20,), P, "^sms_per_place " + LIMIT.format(1, 1 << 20)),
    ((1 << 80,), P, "^sms_per_place " + LIMIT.format(1, 1 << 80)),
    ((8, 0), P, "^n_places " + LIMIT.format(1, 0)),
    ((8, -1), P, "^n_places " + LIMIT.format(1, -1)),
    (([8, 0],), P, "^each count of sms_per_place " + LIMIT.format(1, 0)),
    (([8, -8],), P, "^each count of sms_per_place " + LIMIT.format(1, -8)),
    (([],), P, "^sms_per_place names one place or more: got an empty sequence$"),
    (((), 1), P, "^sms_per_place names one place or more: got an empty sequence$"),
    (
        ([8, 16], 3),
        P,
        "^n_places is the number of counts where .* got n_places=3 and 2 counts; leave n_places out$",
    ),
    ((True,), T, r"^sms_per_place is an int or a sequence of ints: got True \(bool\)$"),
    ((8, True), T, "^n_places " + INT.format("True", "bool")),
    (([8, False],), T, "^each count of sms_per_place " + INT.format("False", "bool")),
    ((8.0,), T, r"^sms_per_place is an int or a sequence of ints: got 8\.0 \(float\)$"),
    ((Fraction(8),), T, r"^sms_per_place is an int or a sequence of ints: got Fraction\(8, 1\)"),
    (("8",), T, r"^sms_per_place is an int or a sequence of ints: got '8' \(str\)$"),
    ((b"8",), T, r"^sms_per_place is an int or a sequence of ints: got b'8' \(bytes\)$"),
    ((None,), T, r"^sms_per_place is an int or a sequence of ints: got None \(NoneType\)$"),
    ((8, 2.0), T, "^n_places " + INT.format(r"2\.0", "float")),
    ((8, "2"), T, "^n_places " + INT.format("'2'", "str")),
    (([8, "8"],), T, "^each count of sms_per_place " + INT.format("'8'", "str")),
    (([8, 8.5],), T, "^each count of sms_per_place " + INT.format(r"8\.5", "float")),
    (([[8]],), T, "^each count of sms_per_place " + INT.format(r"\[8\]", "list")),
]
BAD_OPTIONS = [
    ({"coscheduled_sm_count": -1}, P, "^coscheduled_sm_count " + LIMIT.format(0, -1)),
    ({"coscheduled_sm_count": 8.0}, T, "^coscheduled_sm_count " + INT.format(r"8\.0", "float")),
    ({"coscheduled_sm_count": None}, T, "^coscheduled_sm_count " + INT.format("None", "NoneType")),
    ({"coscheduled_sm_count": 8, "fine_grained": True}, P, "coscheduled_sm_count or fine_grained, not both$"),
    ({"exact": 2}, T, "^exact is True or False: got 2$"),
    ({"exact": "yes"}, T, "^exact is True or False: got 'yes'$"),
    ({"exact": None}, T, "^exact is True or False: got None$"),
    ({"fine_grained": "no"}, T, "^fine_grained is True or False: got 'no'$"),
    ({"fine_grained": 1.0}, T, r"^fine_grained is True or False: got 1\.0$"),
    ({"workqueue": 5}, T, r"^workqueue is a WorkqueueOptions, or has its fields .*: got 5 \(int\)$"),
    ({"workqueue": "device_ctx"}, T, r"^workqueue is a WorkqueueOptions, .*: got 'device_ctx' \(str\)$"),
    ({"workqueue": {"scope": 1}}, ValueError, r"^workqueue has sharing_scope and .*: got \['scope'\]$"),
    (
        {"workqueue": {"scope": 1, 2: 3}},
        ValueError,
        r"^workqueue has sharing_scope and concurrency_limit: got",
    ),
    (
        {"workqueue": {"sharing_scope": "all"}},
        ValueError,
        r"^sharing_scope is one of 'device_ctx', .*: got 'all'$",
    ),
    ({"workqueue": {"sharing_scope": []}}, (T, ValueError), r"^sharing_scope is one of .*: got \[\]$"),
    ({"workqueue": {"concurrency_limit": 0}}, ValueError, "^concurrency_limit " + LIMIT.format(1, 0)),
    ({"workqueue": {"concurrency_limit": "4"}}, T, "^concurrency_limit " + INT.format("'4'", "str")),
    ({"workqueue": {"concurrency_limit": True}}, T, "^concurrency_limit " + INT.format("True", "bool")),
    ({"within": 8}, T, r"^within= takes places of green_places\(\): got 8 \(int\)$"),
    (
        {"within": stf.exec_place.host()},
        P,
        r"^within= takes places of green_places\(\): got exec_place\.host\(\)",
    ),
]
BAD_DEVICES = [
    (1, stf.InvalidDevice, r"^device 1 does not exist: this machine \(h200x1\) has 1 device"),
    (99, stf.InvalidDevice, r"^device 99 does not exist"),
    (-1, ValueError, r"^device ordinals count from 0: got -1$"),
    ("0", T, r"^a device is an int, its ordinal: got '0' \(str\)$"),
    (0.0, T, r"^a device is an int, its ordinal: got 0\.0 \(float\)$"),
    (True, T, r"^a device is an int, its ordinal: got True \(bool\)$"),
    (None, T, r"^a device is an int, its ordinal: got None \(NoneType\)$"),
]
MAKERS = {
    "green_places": stf.green_places,
    "plan": stf.plan_green_places,
    "repartition": lambda *given, **options: stf.repartition(stf.green_places(8, 2), *given, **options),
}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def check_refused(call, error, text):
    gc.collect()  # places that the traceback of a failed test held
    with pytest.raises(error, match=text) as caught:
        call()
    expected = error if isinstance(error, tuple) else (error,)
    assert type(caught.value) in (*expected, stf.PartitionError)
    del caught


@each_maker
@pytest.mark.parametrize(("asked", "error", "text"), BAD_COUNTS, ids=lambda given: str(given)[:40])
def test_bad_counts_are_named(make, asked, error, text):
    check_refused(lambda: make(*asked), error, text)
    assert len(stf.plan_green_places(8).sm_counts) == 15


@each_maker
@pytest.mark.parametrize(("options", "error", "text"), BAD_OPTIONS, ids=lambda given: str(given)[:60])
def test_bad_options_are_named(make, options, error, text):
    if "within" in options and make is MAKERS["repartition"]:
        error, text = TypeError, "unexpected keyword argument 'within'"
    check_refused(lambda: make(8, 1, **options), error, text)
    assert len(stf.plan_green_places(8).sm_counts) == 15


@pytest.mark.parametrize("make", [stf.green_places, stf.plan_green_places])
@pytest.mark.parametrize(("device", "error", "text"), BAD_DEVICES, ids=str)
def test_bad_devices_are_named(make, device, error, text):
    check_refused(lambda: make(8, 1, device), error, text)


@pytest.mark.parametrize("make", [stf.green_places, stf.plan_green_places])
def test_the_device_of_within_is_not_contradicted(two_devices, make):
    (parent,) = stf.green_places(16, 1, 1)
    for device in (0, 1):  # 0 is what is there when nothing was given
        assert make(8, 1, device, within=parent)
    check_refused(
        lambda: make(8, 1, 2, within=parent),
        P,
        r"^within= is a place of device 1: got device_id=2; leave device_id out",
    )
    for device in ("1", 1.0, True, None):
        check_refused(
            lambda device=device: make(8, 1, device, within=parent),
            T,
            r"^a device is an int, its ordinal: got",
        )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: stf.green_places(200), "green_places(200)"),
        (lambda: stf.green_places(8, 99), "green_places(8, n_places=99)"),
        (lambda: stf.green_places((8, 200)), "green_places([8, 200])"),
        (lambda: stf.green_places(range(100, 102)), "green_places([100, 101])"),
        (lambda: stf.green_places(k for k in (8, 200)), "green_places([8, 200])"),
        (lambda: stf.green_places(9, 1, exact=True), "green_places(9, n_places=1, exact=True)"),
        (
            lambda: stf.green_places(3, 50, fine_grained=True),
            "green_places(3, n_places=50, fine_grained=True)",
        ),
        (lambda: stf.repartition(stf.green_places(8, 1), 64, 3), "repartition(64, n_places=3)"),
    ],
)
def test_the_text_begins_with_the_call(call, text):
    with pytest.raises(stf.PartitionError) as caught:
        call()
    assert str(caught.value).startswith(text + " cannot be met: device 0 has 132 SMs") or (
        str(caught.value).startswith(text + " cannot be met: exact=True")
    )


def test_partition_errors_are_value_errors():
    assert issubclass(stf.PartitionError, ValueError) and issubclass(stf.PartitionError, stf.StfError)


def test_workqueue_options_are_a_value():
    options = stf.WorkqueueOptions("green_ctx_balanced", 4)
    assert options == stf.WorkqueueOptions("green_ctx_balanced", np.int64(4)) != stf.WorkqueueOptions()
    assert eval(repr(options), vars(stf)) == options and len({options, options}) == 1
    with pytest.raises(AttributeError):
        options.concurrency_limit = 5
