"""`verify_places`: what it says of partitions, on the simulated machine and on a GPU; what it refuses."""

import json

import pytest

from stf_places import errors
from stf_places._native import runtime
from stf_places.machines import use_machine
from stf_places.places import (
    exec_place,
    exec_place_grid,
    exec_place_resources,
    green_places,
    repartition,
)
from stf_places.places.verification import PlaceProbe, PlacesReport, verify_places

DEVICE_SMS = 132  # of an H200


@pytest.fixture(autouse=True, scope="module")
def kernel_folder(tmp_path_factory):
    """Keep compiled kernels of these tests out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "stf_places"


def driver():
    return runtime.current().driver


def ids_of(report):
    return [set(probe.sm_ids) for probe in report.probes]


# ---- Partitions that keep what they promise


@pytest.mark.parametrize(
    ("counts", "n_places", "fine"),
    [
        (8, None, False),
        ([8, 16, 24], None, False),
        ([104, 8, 8], None, False),
        ([64, 32, 32], None, False),
        ([16] * 8, None, False),
        (32, 1, False),
        ([2] * 66, None, True),
        ([2, 30, 6, 94], None, True),
    ],
    ids=str,
)
def test_partitions_are_disjoint_and_exact(machine, counts, n_places, fine):
    places = green_places(counts, n_places, fine_grained=fine)
    report = verify_places(places)
    assert report.disjoint and report.exact and report.ok, str(report)
    assert report.shared == {}
    assert [probe.place for probe in report.probes] == list(places)
    assert [probe.sm_count for probe in report.probes] == [place.sm_count for place in places]
    assert [len(ids) for ids in ids_of(report)] == list(places.plan.sm_counts)
    assert set.union(*ids_of(report)) <= set(range(DEVICE_SMS))
    assert all(list(probe.sm_ids) == sorted(set(probe.sm_ids)) for probe in report.probes)


def test_fifteen_places_and_the_remainder_make_the_device(machine):
    places = green_places(8)
    assert len(places) == 15
    report = verify_places([*places, places.remainder])
    assert report.ok, str(report)
    assert report.probes[-1].sm_count == 12
    assert set.union(*ids_of(report)) == set(range(DEVICE_SMS))


def test_places_within_a_place_stay_in_it(machine):
    (outer,) = green_places(64, 1)
    inner = green_places(16, within=outer)
    report = verify_places(inner)
    assert report.ok, str(report)
    with_outer = verify_places([outer, *inner])
    assert with_outer.exact and not with_outer.disjoint
    assert set.union(*ids_of(report)) <= set(with_outer.probes[0].sm_ids)
    assert {sm for _, sm in with_outer.shared} == set.union(*ids_of(with_outer)[1:])


def test_places_of_repartition(machine):
    places = repartition(green_places(64), [16, 96])
    report = verify_places(places)
    assert report.ok, str(report)
    assert [len(ids) for ids in ids_of(report)] == [16, 96]


def test_a_place_on_anothers_context_is_seen_on_its_sms(machine):
    places = green_places([16, 32])
    adopted = exec_place.from_context(int(places[1].backing_context.handle))
    report = verify_places([places[0], adopted])
    assert report.ok, str(report)
    assert [len(ids) for ids in ids_of(report)] == [16, 32]


# ---- What is shared is said


def test_a_device_beside_its_partition_is_shared(machine):
    (part,) = green_places(8, 1)
    report = verify_places([exec_place.device(0), part])
    device, partition = ids_of(report)
    assert (len(device), len(partition)) == (DEVICE_SMS, 8)
    assert report.exact and not report.disjoint and not report.ok
    assert report.shared == {(0, sm): (0, 1) for sm in sorted(partition)}
    assert "Not disjoint: SMs" in str(report)
    assert "of device 0 were seen on places 0-1." in str(report)


def test_the_same_place_twice_is_shared(machine):
    (place,) = green_places(16, 1)
    report = verify_places([place, place])
    assert len(report.shared) == 16 and report.exact


def test_devices_do_not_share_sms(simulated):
    report = verify_places(exec_place_grid.from_devices([0, 1]))
    assert report.ok
    assert ids_of(report) == [set(range(DEVICE_SMS))] * 2
    assert [probe.device_id for probe in report.probes] == [0, 1]
    assert [probe.start_us for probe in report.probes] == [0, 0]


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_two_gpus(cuda):
    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with use_machine("cuda"):
        places = green_places(32, 2, device_id=1)
        report = verify_places([exec_place.device(0), *places])
        assert report.ok, str(report)
        assert [probe.device_id for probe in report.probes] == [0, 1, 1]


def test_grids_stand_for_their_places(machine):
    places = green_places(32)
    grid = exec_place_grid.create(places, (2, 2))
    report = verify_places(grid)
    assert [probe.place for probe in report.probes] == list(places)
    assert verify_places([grid[0], places[3]]).ok
    assert [probe.place for probe in verify_places(places[2]).probes] == [places[2]]


@pytest.mark.gpu
def test_the_kernel_is_compiled_once(cuda, kernel_folder):
    with use_machine("cuda"):
        places = green_places(64)
        assert verify_places(places).ok
        (entry,) = kernel_folder.iterdir()
        before = entry.stat()
        assert verify_places(places).ok
        assert [path.stat().st_mtime_ns for path in kernel_folder.iterdir()] == [before.st_mtime_ns]
        entry.write_bytes(b"broken")
        assert verify_places(places).ok


# ---- Overlap in time


def assert_lasts(machine, probe, expected_us):
    """Check a probe's time: the kernel spins that long at least, and on the simulated clock hardly longer."""
    lasted = probe.end_us - probe.start_us
    assert lasted >= expected_us - 10
    assert not machine.simulated or lasted < 1.2 * expected_us


def test_four_places_work_at_once(machine):
    report = verify_places(green_places(32))
    assert len(report.probes) == 4
    assert 0.5 < report.overlap <= 1, str(report)
    assert report.most_at_once == {0: 4}
    assert min(probe.start_us for probe in report.probes) == 0
    for probe in report.probes:  # 8 blocks an SM, 2 at once, 300 us each
        assert_lasts(machine, probe, 1200)


def test_work_lasts_as_long_as_asked(machine):
    (place,) = green_places(16, 1)
    (probe,) = verify_places([place], blocks_per_sm=2, duration_us=1000).probes
    assert_lasts(machine, probe, 1000)
    (probe,) = verify_places([place], blocks_per_sm=6, duration_us=100.0).probes
    assert_lasts(machine, probe, 300)


def test_the_model_does_not_run_two_kernels_on_one_sm(simulated):
    (part,) = green_places(8, 1)
    report = verify_places([exec_place.device(0), part])
    assert (report.overlap, report.most_at_once) == (0, {0: 1})
    assert "No overlap: places of a device were never all at work at once." in str(report)
    assert "At most 1 of the 2 places of device 0 were at work at one moment." in str(report)


# ---- What is left as it was


def test_the_current_context_stays(machine):
    places = green_places([16, 32])
    handle, before = driver(), driver().current_context()
    try:
        handle.set_current_context(0)
        verify_places(places)
        assert handle.current_context() == 0
    finally:
        handle.set_current_context(before)
    with places[1]:
        inside = handle.current_context()
        assert verify_places(places).ok
        assert handle.current_context() == inside
    assert handle.current_context() == before


def test_the_current_context_stays_after_a_refusal(machine):
    places = green_places([16, 32])
    with places[1]:
        inside = driver().current_context()
        for wrong in ([], [*places, exec_place.host()], [*places, exec_place.device(99)]):
            with pytest.raises(ValueError):
                verify_places(wrong)
            assert driver().current_context() == inside
    assert verify_places(places).ok


@pytest.mark.parametrize("nth", [1, 3, 4])
@pytest.mark.parametrize("kind", ["launch", "event"])
def test_after_a_failure_everything_is_as_before(simulated, kind, nth):
    places = green_places(32)
    context = driver().current_context()
    driver().order_fault(kind, nth, "failed")
    with pytest.raises(errors.DriverError):
        verify_places(places)
    assert driver().current_context() == context
    assert verify_places(places).ok


def test_work_that_is_there_already_does_not_matter(simulated):
    places, resources = green_places(64), exec_place_resources()
    stream = places[0].pick_stream(resources)
    done = []
    driver().host_work(stream, lambda: done.append(1), symbol="theirs", cost_us=5000, sms=64)
    report = verify_places(places)
    assert report.ok
    assert [probe.end_us - probe.start_us for probe in report.probes] == [1200, 1200]
    assert report.overlap == 0  # the first place was taken
    driver().synchronize_stream(stream)
    assert done == [1]


def test_a_recorded_timeline_stays(simulated):
    places, resources = green_places(64), exec_place_resources()
    stream = places[0].pick_stream(resources)

    def work(name):
        driver().host_work(stream, None, symbol=name, cost_us=10)
        driver().synchronize_stream(stream)

    driver().record_timeline(True)
    work("before")
    before = driver().timeline()
    verify_places(places)
    work("after")
    after = driver().timeline()
    assert after[: len(before)] == before
    names = ("before", "verify_places", "after")
    assert [entry["symbol"] for entry in after if entry["symbol"] in names] == [
        "before", "verify_places", "verify_places", "after",
    ]  # fmt: skip


def test_no_timeline_is_begun(simulated):
    places, resources = green_places(64), exec_place_resources()
    verify_places(places)
    driver().host_work(places[0].pick_stream(resources), None, symbol="later", cost_us=10)
    driver().drain()
    assert driver().timeline() == []


@pytest.mark.parametrize("options", [{"execute": False}, {"chaos": 3}, {"measure_bodies": True}], ids=str)
def test_other_kinds_of_simulated_machines(options):
    with use_machine("sim:h200x1", **options):
        report = verify_places(green_places(32))
        assert report.ok and report.overlap > 0.9


# ---- What is refused


def test_refusals(simulated):
    (place,) = green_places(16, 1)
    with pytest.raises(ValueError, match=r"takes one place or more: got none; give"):
        verify_places([])
    for wrong in (exec_place.host(), [place, exec_place.host()]):
        with pytest.raises(
            ValueError, match=r"places that have SMs: got exec_place.host\(\) among them; leave"
        ):
            verify_places(wrong)
    for wrong in (3, None, "places", b"places"):
        with pytest.raises(TypeError, match=r"verify_places takes a place or several: got .*; give"):
            verify_places(wrong)
    with pytest.raises(TypeError, match=r"takes execution places: got 0 \(int\) as item 1; give"):
        verify_places([place, 0])
    with pytest.raises(errors.InvalidDevice):
        verify_places([place, exec_place.device(2)])


@pytest.mark.parametrize("given", [1, 0, -1, 65])
def test_blocks_have_a_range(simulated, given):
    with pytest.raises(ValueError, match=f"blocks_per_sm is 2 to 64, .*: got {given}"):
        verify_places(exec_place.device(0), blocks_per_sm=given)


@pytest.mark.parametrize("given", [9.9, 0, -1, 100_001, float("nan"), float("inf")])
def test_durations_have_a_range(simulated, given):
    with pytest.raises(ValueError, match="duration_us is 10 to 100000 microseconds: got"):
        verify_places(exec_place.device(0), duration_us=given)


def test_numbers_are_checked(simulated):
    for wrong in (8.0, "8", True, None):
        with pytest.raises(TypeError, match="blocks_per_sm is an int: got"):
            verify_places(exec_place.device(0), blocks_per_sm=wrong)
    for wrong in ("300", True, None):
        with pytest.raises(TypeError, match="duration_us is a number of microseconds: got"):
            verify_places(exec_place.device(0), duration_us=wrong)


def test_a_replaced_place_is_refused(machine):
    old = green_places(64)
    new = repartition(old, [16, 96])
    with pytest.raises(errors.PartitionError, match=r"was replaced by repartition\(\)"):
        verify_places([new[0], old[1]])
    assert verify_places(new).ok


def test_places_of_another_machine_are_refused(simulated):
    places = green_places(64)
    with (
        use_machine("sim:h200x1"),
        pytest.raises(errors.WrongContext, match="use places and contexts of one machine"),
    ):
        verify_places(places)


# ---- The report


def probes(*rows):
    """Return probes of (granted, ids, start, end) on device 0."""
    return tuple(PlaceProbe(exec_place.device(0), *row) for row in rows)


def test_the_report_says_what_machine_it_was(machine):
    report = verify_places(green_places(64))
    assert report.simulated is machine.simulated
    if machine.simulated:
        assert report.machine == "h200x2"
        last = "Simulated machine h200x2: ids and times are its model's, no GPU was looked at."
    else:
        assert report.machine == "cuda"
        last = "Seen by a kernel on the GPU, on each place alone and on all at once; the times are of the latter."
    assert str(report).splitlines()[-1] == last


def test_json_holds_everything(machine):
    (part,) = green_places(8, 1)
    report = verify_places([exec_place.device(0), part])
    found = json.loads(report.to_json())
    for name in ("ok", "disjoint", "exact", "overlap", "machine", "simulated"):
        assert found[name] == getattr(report, name)
    assert found["shared"] == [{"device": 0, "sm_id": sm, "places": [0, 1]} for sm in report.probes[1].sm_ids]
    assert [place["sm_ids"] for place in found["places"]] == [list(probe.sm_ids) for probe in report.probes]
    assert found["places"][1]["end_us"] == report.probes[1].end_us


def test_two_more_shared_sms_are_explained():
    report = PlacesReport(
        probes((2, (0, 1, 130, 131), 0.0, 10.0), (2, (2, 3, 130, 131), 0.0, 10.0)), "cuda", False
    )
    assert str(report).splitlines() == [
        "place  device  granted  seen  SM ids",
        "    0       0        2     4  0-1,130-131",
        "    1       0        2     4  2-3,130-131",
        "Not disjoint: SMs 130-131 of device 0 were seen on places 0-1.",
        "Not exact: place 0 was granted 2 SMs and seen on 4.",
        "Not exact: place 1 was granted 2 SMs and seen on 4.",
        "Places used more SMs than granted, and share some. On compute capability 9 the driver allows two more, "
        "shared SMs to kernels of green contexts once a module with dynamic parallelism was loaded.",
        "Overlap: each place spent 100 % of its time or more at work together with all others of its device.",
        "Seen by a kernel on the GPU, on each place alone and on all at once; the times are of the latter.",
    ]


def test_fewer_sms_than_granted_are_not_explained_away():
    report = PlacesReport(probes((4, (0, 1, 5), 0.0, 10.0)), "cuda", False)
    assert report.disjoint and not report.exact and not report.ok
    assert "Not exact: place 0 was granted 4 SMs and seen on 3." in str(report)
    assert "dynamic parallelism" not in str(report)
    assert "Overlap" not in str(report)  # one place overlaps with nothing
    assert report.overlap == 1


def test_sharing_without_more_than_granted_is_not_explained_away():
    report = PlacesReport(probes((2, (0, 1), 0.0, 10.0), (2, (1, 2), 0.0, 10.0)), "cuda", False)
    assert report.exact and not report.ok
    assert "Not disjoint: SMs 1 of device 0 were seen on places 0-1." in str(report)
    assert "dynamic parallelism" not in str(report)


def test_long_lists_of_findings_are_cut():
    report = PlacesReport(probes(*[(2, (i,), 0.0, 1.0) for i in range(20)]), "cuda", False)
    assert str(report).count("Not exact") == 8
    assert "... and 12 more of this kind." in str(report)


@pytest.mark.parametrize(
    ("times", "overlap", "most"),
    [
        ([(0, 10), (0, 10)], 1, 2),
        ([(0, 10), (5, 15)], 0.5, 2),
        ([(0, 10), (10, 20)], 0, 1),
        ([(0, 10), (2, 4)], 0.2, 2),
        ([(0, 10), (0, 10), (20, 30)], 0, 2),
    ],
)
def test_overlap_is_of_all_places(times, overlap, most):
    report = PlacesReport(
        probes(*[(1, (i,), float(a), float(b)) for i, (a, b) in enumerate(times)]), "x", True
    )
    assert report.overlap == pytest.approx(overlap)
    assert report.most_at_once == {0: most}
