"""Contexts behind places, of ours and of other owners, and work that runs on them."""

import copy
import gc
import itertools
import pickle
import weakref

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import sm_splits

from_context = stf.exec_place.from_context


@pytest.fixture(autouse=True)
def h200(machine):
    """Run on devices of 132 SMs, and see that each test leaves all of them free."""
    if any(device.sm_count != 132 for device in machine.devices):
        pytest.skip("needs devices of 132 SMs in steps of 8")
    yield machine
    gc.collect()
    for device in range(machine.device_count):
        assert len(stf.plan_green_places(8, device_id=device).sm_counts) == 15, "the test left places behind"


def partition():
    """Return a place of 16 SMs, which no fixture may hold: it has to go with the test."""
    return stf.green_places(16, 1)[0]


class Owner:
    """An object with a handle, as cuda.core has them."""

    def __init__(self, handle, **more):
        self.handle = handle
        self.__dict__.update(more)


class Streaming(Owner):
    """A green context whose streams keep it, as those of cuda.core do."""

    is_green = True

    def create_stream(self):
        return self.made


class Alias:
    """An object with a context, as Warp's devices are."""

    def __init__(self, context):
        self.context = context


class Sized:
    """A handle that is no int but can become one, as cuda.bindings have them."""

    def __init__(self, number):
        self.number = number

    def __int__(self):
        return self.number


# ---- The context of a place ------------------------------------------------------------------------------


def test_the_backing_context_tells_what_it_is(machine):
    place = partition()
    context = place.backing_context
    assert isinstance(context, stf.GreenContext)
    assert (context.is_green, context.is_closed, context.device_id) == (True, False, 0)
    assert context.resources.sm.sm_count == place.sm_count == 16
    assert isinstance(context.handle, int) and context.handle != machine._driver.primary_context(0)
    assert machine._driver.context_device(context.handle) == 0
    assert repr(context) == f"<GreenContext {context.handle:#x}: 16 SMs of device 0>"
    assert place.backing_context == context and hash(place.backing_context) == hash(context)
    assert stf.exec_place.device(0).backing_context is stf.exec_place.host().backing_context is None


def test_closing_gives_up_one_share_only(machine):
    place = partition()
    context, handle = place.backing_context, place.backing_context.handle
    context.close()
    context.close()
    assert context.is_closed and context.handle is None and repr(context) == "<GreenContext: closed>"
    for name in ("device_id", "resources"):
        with pytest.raises(
            ValueError, match=r"this GreenContext is closed: take place\.backing_context again"
        ):
            getattr(context, name)
    with pytest.raises(ValueError, match="closed"):
        context.to_cuda_core()
    assert place.backing_context.handle == handle and place.backing_context != context
    if machine.simulated:
        with pytest.raises(stf.NotSupported, match="of a simulated machine"):
            place.backing_context.to_cuda_core()
    with stf.context() as ctx:
        data = ctx.logical_data_full(3, 2.0, exec_place=place)
        assert (ctx.wait(data) == 2).all()
    with place:
        assert machine._driver.current_context() == handle


def test_green_contexts_are_compared_by_handle():
    first, second = (place.backing_context for place in stf.green_places(8, 2))
    again = stf.GreenContext(first._open())
    assert first == again and hash(first) == hash(again) and first not in (second, first.handle)
    again.close()
    assert again not in (first, second) and again == [again][0]


def test_places_are_compared_by_their_context():
    place = partition()
    other = stf.green_places(16, 1)[0]
    same = [from_context(place.backing_context), from_context(place.backing_context.handle)]
    assert all(one == place and hash(one) == hash(place) and one is not place for one in same)
    assert len({place, other, *same, stf.exec_place.device(0)}) == 3
    assert place not in (stf.exec_place.device(0), stf.exec_place.host(), stf.data_place.device(0))
    assert stf.exec_place_grid.create([place]) != place


@pytest.mark.parametrize("made_by", ["place", "context", "view", "grid", "list"])
def test_what_is_bound_to_the_process_is_not_pickled(made_by):
    place = partition()
    things = {
        "place": place,
        "context": place.backing_context,
        "view": stf.green_ctx_view(place),
        "grid": stf.exec_place_grid.create([place]),
        "list": [place],
    }
    with pytest.raises(TypeError, match="pickl"):
        pickle.dumps(things[made_by])
    with pytest.raises(TypeError, match="pickl"):
        copy.deepcopy(things[made_by])


# ---- Contexts of other owners ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        int,
        Sized,
        Owner,
        Alias,
        np.uint64,
        lambda handle: Owner(Sized(handle)),
        lambda handle: Alias(Sized(handle)),
    ],
    ids=["int", "__int__", "handle", "context", "uint64", "handle.__int__", "context.__int__"],
)
def test_a_place_on_any_kind_of_context(machine, wrap):
    place = partition()
    given = wrap(place.backing_context.handle)
    found = from_context(given)
    assert found == place and found.backing_context is given
    assert (found.kind, found.device_id, found.sm_count) == ("device", 0, 16)
    assert from_context(given, 0) == from_context(given, np.int64(0)) == found
    with stf.context() as ctx:
        data = ctx.logical_data_full(3, 2.0, exec_place=found)
        assert (ctx.wait(data) == 2).all()
    with found:
        assert machine._driver.current_context() == place.backing_context.handle


def test_a_place_on_a_primary_context_has_all_sms(machine):
    primary = from_context(machine._driver.primary_context(0))
    assert (primary.device_id, primary.sm_count) == (0, 132)
    assert primary.affine_data_place == stf.data_place.device(0)
    with pytest.raises(stf.PartitionError, match=r"takes places of green_places\(\)"):
        stf.green_places(8, within=primary)


def test_a_place_of_our_own_context_can_be_split_further():
    place = partition()
    inner = stf.green_places(8, within=from_context(place.backing_context))
    assert len(inner) in (1, 2)  # chips differ in how a group of 16 can be cut
    assert sum(each.sm_count for each in inner) <= place.sm_count


@pytest.mark.parametrize("make", [Owner, lambda handle: Owner(handle, is_green=True)], ids=["plain", "green"])
def test_the_owner_is_kept_as_long_as_it_is_used(machine, make):
    place = partition()
    owner = make(place.backing_context.handle)
    watch = weakref.ref(owner)
    found = from_context(owner)
    resources = stf.exec_place_resources()
    found.pick_stream(resources)
    del owner, found
    stf.plan_green_places(8)
    assert watch() is not None, "a stream still uses the context"
    del resources
    stf.plan_green_places(8)  # contexts that are no longer used go at a call
    assert watch() is None


def test_a_stream_keeps_a_green_context_that_its_user_closes():
    place = partition()
    owner = Streaming(place.backing_context.handle, made=Alias(0))
    watch = weakref.ref(owner.made)
    found = from_context(owner)
    owner.handle = owner.made = None
    assert watch() is not None and found == place
    del found, owner
    stf.plan_green_places(8)
    assert watch() is None


def test_a_refused_owner_is_let_go(machine):
    place = partition()
    owner = Owner(place.backing_context.handle)
    watch = weakref.ref(owner)
    with pytest.raises(ValueError, match=r"this context belongs to device 0: got dev_id=1; leave dev_id out"):
        from_context(owner, 1)
    del owner
    assert watch() is None


@pytest.mark.parametrize(
    "closed",
    [Owner(None), Owner(5, is_closed=True), Alias(None), Owner(0), Alias(Sized(0))],
    ids=["handle None", "is_closed", "context None", "handle 0", "context 0"],
)
def test_closed_contexts_are_refused(closed):
    with pytest.raises(ValueError, match="closed"):
        from_context(closed)


def test_a_closed_context_of_ours_is_refused():
    place = partition()
    context = place.backing_context
    context.close()
    with pytest.raises(
        ValueError, match=r"<GreenContext: closed> is closed: a place needs a context that is open"
    ):
        from_context(context)


@pytest.mark.parametrize(
    "wrong",
    ["x", b"x", 1.5, True, object(), [1], None, Owner("x"), Owner(1.5), Owner(True)],
    ids=["str", "bytes", "float", "bool", "object", "list", "None", "of str", "of float", "of bool"],
)
def test_what_is_no_context_is_refused(wrong):
    with pytest.raises(TypeError, match=r"from_context takes a raw CUcontext|a context's handle is an int"):
        from_context(wrong)


@pytest.mark.parametrize("wrong", [-1, 0, 1 << 64])
def test_what_is_no_handle_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"{wrong} has the handle {wrong}, which is no context"):
        from_context(wrong)


def test_the_device_of_a_context_is_checked(machine):
    place = partition()
    for context in (place.backing_context, place.backing_context.handle):
        for wrong in (1, 99):
            with pytest.raises(
                ValueError, match=rf"belongs to device 0: got dev_id={wrong}; leave dev_id out"
            ):
                from_context(context, wrong)
        with pytest.raises(ValueError, match="-1 asks the context: got dev_id=-2"):
            from_context(context, -2)
        for odd in ("0", 0.0, True, None):
            with pytest.raises(TypeError, match="dev_id is an int, the device's ordinal: got"):
                from_context(context, odd)


def test_a_simulated_machine_knows_its_contexts(machine):
    if not machine.simulated:
        pytest.skip("needs a machine that checks handles")
    with pytest.raises(stf.DriverError, match="no such context: 123456"):
        from_context(123456)


# ---- Views, by the older names ---------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "count", "granted"), [(8, 15, 8), (12, 8, 16), (32, 4, 32), (132, 1, 132)])
def test_a_helper_has_views_of_one_size(machine, asked, count, granted):
    last = machine.device_count - 1
    helper = stf.green_context_helper(asked, last)
    assert (helper.get_count(), len(helper), helper.device_id) == (count, count, last)
    assert repr(helper) == f"<green_context_helper: {count} x {granted} SMs of device {last}>"
    views = [helper.get_view(i) for i in range(count)]
    assert {(view.device_id, view.sm_count) for view in views} == {(last, granted)}
    assert len({view.handle for view in views}) == len(set(views)) == count
    assert helper.get_view(np.int64(0)) == views[0]
    for wrong in (count, -1, -count):
        with pytest.raises(IndexError, match=rf"views are numbered 0 to {count - 1}: got {wrong}"):
            helper.get_view(wrong)
    for odd in ("0", 1.0, None):
        with pytest.raises(TypeError):
            helper.get_view(odd)


def test_helpers_refuse_what_green_places_refuses(machine):
    missing = machine.device_count
    with pytest.raises(stf.PartitionError, match="sms_per_place is 1 or more"):
        stf.green_context_helper(0)
    with pytest.raises(TypeError, match="sms_per_place is an int"):
        stf.green_context_helper("8")
    with pytest.raises(stf.PartitionError, match="device 0 has 132 SMs"):
        stf.green_context_helper(133)
    with pytest.raises(stf.InvalidDevice, match=f"device {missing} does not exist"):
        stf.green_context_helper(8, missing)


@pytest.mark.parametrize("flag", [False, True])
def test_places_of_views(machine, flag):
    last = machine.device_count - 1
    view = stf.green_context_helper(32, last).get_view(1)
    found = stf.exec_place.green_ctx(view, flag)
    assert found == view.place and found.backing_context.handle == view.handle
    assert found.affine_data_place == stf.data_place.green_ctx(view) == stf.data_place.device(last)
    found.set_affine_data_place(stf.data_place.managed())
    assert view.place.affine_data_place == stf.data_place.device(last)
    assert stf.exec_place.green_ctx(view, use_green_ctx_data_place=flag).affine_data_place.kind == "device"
    for wrong in (view.place, view.handle, None, "view"):
        for make in (stf.exec_place.green_ctx, stf.data_place.green_ctx):
            with pytest.raises(TypeError, match=r"a green_ctx_view is needed, from green_context_helper"):
                make(wrong)


# ---- Work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_copies_on_all_kinds_of_places_agree_with_numpy(machine, seed):
    """The copies go on the streams of the places, so that a GPU does the work of the tasks too."""
    draw, driver, last = np.random.default_rng(seed), machine._driver, machine.device_count - 1
    places = [*stf.green_places([8, 24, 16]), *stf.green_places(16, 3, last)] if last else stf.green_places(8)
    if not last:
        places = list(places)
    places += [from_context(places[0].backing_context), stf.exec_place.device(0)]
    expected = draw.integers(0, 1 << 40, (6, 100))
    sources = expected.copy()
    with stf.context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for step in range(120):
            place = places[step % len(places)]
            a, b = map(int, draw.choice(6, 2, replace=False))
            first, second, count = (int(k) for k in draw.integers(0, 50, 3))
            with ctx.task(place, data[a].read(), data[b].rw()) as t:
                start, end = t.get_arg(0) + 8 * first, t.get_arg(1) + 8 * second
                at = place.device_id
                driver.copy(end, at, start, at, 8 * count, int(t.stream_ptr()))
            expected[b, second : second + count] = expected[a, first : first + count]
    assert np.array_equal(sources, expected)
    assert not machine.simulated or machine.conflicts == ()


@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_on_simulated_places_agrees_with_numpy(machine, seed):
    if not machine.simulated:
        pytest.skip("needs a machine whose device memory the CPU can use")
    draw = np.random.default_rng(seed)
    places = [*stf.green_places([8, 24, 16]), *stf.green_places(12, 4, 1), stf.exec_place.host()]
    expected = draw.integers(-99, 99, (5, 40)).astype(float)
    sources = expected.copy()
    with stf.context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for step in range(100):
            a, b = map(int, draw.choice(5, 2, replace=False))
            with ctx.task(places[step % len(places)], data[a].read(), data[b].rw()) as t:
                t.run(lambda x, y: np.subtract(x, y, out=y), t.numpy(0), t.numpy(1))
            expected[b] = expected[a] - expected[b]
    assert np.array_equal(sources, expected)
    assert machine.conflicts == ()


def test_a_grid_of_partitions_shares_the_work_of_a_task(machine):
    grid = stf.exec_place_grid.create(stf.green_places(8, 6), (2, 3))
    assert grid.sm_count == 48 and grid[1, 2].sm_count == 8
    host = np.random.default_rng(1).random(60)
    source, target = (stf.DeviceArray.from_host(one, stf.data_place.device(0)) for one in (host, 0 * host))
    with stf.context() as ctx, ctx.task(grid, ctx.token().rw()) as t:
        streams = t.get_stream_ptrs()
        assert len(set(streams)) == 6
        for i, stream in enumerate(streams):
            machine._driver.copy(target.ptr + 80 * i, 0, source.ptr + 80 * i, 0, 80, int(stream))
    assert np.array_equal(target.copy_to_host(), host)


def test_streams_of_a_place_belong_to_its_context(machine):
    place = partition()
    other = stf.green_places(8, 1)[0]
    resources = stf.exec_place_resources()
    streams = {place.pick_stream(resources) for _ in range(8)}
    transfers = {place.pick_stream(resources, for_computation=False) for _ in range(8)}
    assert streams and transfers and not streams & transfers
    assert not (streams | transfers) & {other.pick_stream(resources) for _ in range(8)}
    if machine.simulated:
        found = {machine._driver.stream_context(int(stream)) for stream in streams | transfers}
        assert found == {place.backing_context.handle}


def test_arrays_on_the_memory_of_a_partition():
    view = stf.green_context_helper(16).get_view(2)
    resources = stf.exec_place_resources()
    stream = view.place.pick_stream(resources)
    host = np.random.default_rng(2).random((5, 7))
    array = stf.DeviceArray.from_host(host, stf.data_place.green_ctx(view), stream)
    assert array.data_place == stf.data_place.device(0)
    assert np.array_equal(array.copy_to_host(), host)
    with stf.context() as ctx:
        data = ctx.logical_data(host)
        with ctx.task(stf.exec_place.green_ctx(view, True), data.read()) as t:
            assert t.get_arg(0)


def test_host_functions_between_tasks_of_partitions(machine):
    places, seen, source = stf.green_places(16, 4), [], np.zeros(8)
    with stf.context() as ctx:
        data, token = ctx.logical_data(source), ctx.token()
        for number, place in enumerate(places):
            with ctx.task(place, data.rw(), token.rw()) as t:
                value = np.float64(number).tobytes()
                machine._driver.fill(t.get_arg(0) + 8 * number, 0, value, 1, int(t.stream_ptr()))
            ctx.host_launch(data.read(), token.rw(), fn=lambda array: seen.append(array.sum()))
    assert seen == [0, 1, 3, 6] and source.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


# ---- Order of destruction --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(5))), ids=lambda o: "".join(map(str, o)))
def test_objects_go_in_any_order(machine, order):
    places, ctx, resources = stf.green_places(16, 2), stf.context(), stf.exec_place_resources()
    stream = places[0].pick_stream(resources)
    array = stf.DeviceArray.from_host(np.ones(4), stf.data_place.device(0), stream)
    with ctx.task(places[1], ctx.token().rw()):
        pass
    ctx.finalize()
    kept = [places, places[0], places[1].backing_context, ctx, resources]
    del places, ctx, resources
    for number in order:
        kept[number] = None
    assert np.array_equal(array.copy_to_host(), np.ones(4))
    assert stf.plan_green_places(8).remainder == 12


def test_nothing_piles_up(machine):
    def rounds(count):
        for round_ in range(count):
            places, resources = stf.green_places([8, 16][round_ % 2], 3), stf.async_resources()
            with stf.context(handle=resources) as ctx, ctx.task(places[0], ctx.token().rw()):
                places[1].pick_stream(resources)
            stf.green_places(8, 1, within=places[2])
            del places
        stf.plan_green_places(8)
        ids = range(1, 3000) if machine.simulated else ()
        return sum(1 for handle in ids if sm_splits.sm_ids(machine._driver, handle))

    assert rounds(2) == rounds(200) <= machine.device_count + 3


# ---- Other machines --------------------------------------------------------------------------------------


def test_places_belong_to_their_machine(machine):
    last = machine.device_count - 1
    places = stf.green_places(16, 2, last)
    with stf.use_machine("sim:h200x1"):
        text = "use places and contexts of one machine"
        with pytest.raises(stf.WrongContext, match=text), places[0]:
            pass
        with pytest.raises(stf.WrongContext, match=text):
            places[0].pick_stream(stf.exec_place_resources())
        for call in (stf.green_places, stf.plan_green_places):
            with pytest.raises(stf.WrongContext, match=text):
                call(8, within=places[0])
        with stf.context() as ctx:
            for target in (places[0], stf.exec_place_grid.create(places)):
                with pytest.raises(stf.WrongContext, match=text):
                    ctx.task(target, ctx.token().rw()).start()
        assert places[0].sm_count == 16 and places[0].device_id == last
        assert len(stf.green_places(8)) == 15
    with places[0]:
        assert machine._driver.current_context() == places[0].backing_context.handle
