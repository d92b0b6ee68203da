"""Logical data: registration, metadata, dependencies, lifetime."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import stf_places as stf

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def ctx(machine):
    with stf.context() as made:
        yield made


def on_host(ctx, *deps):
    return ctx.task(stf.exec_place.host(), *deps)


class Interface:
    """Describe host memory as a CUDA Array Interface object of another library."""

    def __init__(self, array, **changes):
        self.array = array
        self.fields = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": None,
            "version": 3,
        } | changes

    @property
    def __cuda_array_interface__(self):
        return self.fields


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u2", "i4", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "S5", ">f8", [("a", "f4"), ("b", "i8")]],
)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,), (2, 0, 3)])
def test_registered_arrays_come_back_as_they_were(ctx, dtype, shape):
    source = np.zeros(shape, dtype)
    source.reshape(-1).view("u1")[:] = 65 if source.dtype == "S5" else 1
    data = ctx.logical_data(source)
    result = ctx.wait(data)
    assert (data.shape, data.dtype, data.size, data.nbytes, data.ndim) == (
        shape,
        np.dtype(dtype),
        source.size,
        source.nbytes,
        len(shape),
    )
    assert result.dtype == source.dtype and result.shape == shape
    assert result.tobytes() == source.tobytes()
    assert not np.shares_memory(result, source)


@pytest.mark.parametrize(
    "buffer", [bytearray(b"abcd"), memoryview(bytearray(b"abcd")), (ctypes.c_uint8 * 4)(97, 98, 99, 100)]
)
def test_buffers_are_written_back(buffer):
    with stf.context() as ctx:
        data = ctx.logical_data(buffer)
        assert (data.shape, data.dtype, data.readonly) == ((4,), np.dtype("u1"), False)
        with on_host(ctx, data.rw()) as t:
            t.numpy(0)[0] = 65
    assert bytes(buffer) == b"Abcd"


@pytest.mark.parametrize("source", [b"abcd", memoryview(b"abcd"), np.broadcast_to(np.float64(3), ())])
def test_read_only_sources_are_detected_and_refuse_writes(ctx, source):
    data = ctx.logical_data(source, name="fixed")
    assert data.readonly
    for use in (data.write, data.rw, lambda: stf.write(data), lambda: stf.rw(data)):
        with pytest.raises(
            stf.ReadOnlyError, match=r"writable source: .*'fixed'.* read-only memory; use read\(\)"
        ):
            use()
    with on_host(ctx, data.read()) as t:
        assert not t.numpy(0).flags.writeable


def test_a_read_only_flag_is_enough(ctx):
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="use read"):
        ctx.logical_data(array).rw()


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            np.ones((3, 4)).T,
            r"C-contiguous memory: got shape \(4, 3\) with strides \(8, 32\) bytes; pass np\.ascontig",
        ),
        (np.ones(8)[::2], r"got shape \(4,\) with strides \(16,\)"),
        (memoryview(bytes(8))[::2], r"C-contiguous"),
    ],
)
def test_memory_with_gaps_is_refused(ctx, array, text):
    with pytest.raises(ValueError, match=text):
        ctx.logical_data(array)


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        ([1, 2], r"takes memory to work on.*got list; pass np\.asarray"),
        (3, "got int"),
        (None, "got NoneType"),
        (np.array([object()]), "Python objects cannot be: got dtype object"),
        (np.ma.masked_array([1, 2], [0, 1]), r"two arrays, data and mask: register array\.data"),
    ],
)
def test_what_has_no_plain_memory_is_refused(ctx, thing, text):
    with pytest.raises(TypeError, match=text):
        ctx.logical_data(thing)


@pytest.mark.parametrize("place", [stf.data_place.device(0), stf.data_place.affine()])
def test_host_memory_lies_on_the_host(ctx, place):
    with pytest.raises(ValueError, match=r"ndarray is host memory, so dplace is data_place\.host\(\)"):
        ctx.logical_data(np.ones(2), place)


def test_a_place_is_a_place(ctx):
    with pytest.raises(TypeError, match="dplace"):
        ctx.logical_data(np.ones(2), 0)
    with pytest.raises(TypeError, match="dplace"):
        ctx.logical_data_empty(2).read(0)


def test_device_arrays_know_their_place_and_are_written_back(machine):
    array = stf.DeviceArray.from_host(np.arange(4.0), stf.data_place.device(0))
    with stf.context() as ctx:
        data = ctx.logical_data(array)
        with on_host(ctx, data.rw()) as t:
            t.numpy(0)[:] *= 2
        with pytest.raises(
            ValueError, match=r"DeviceArray lies on .*device\(0\).*got dplace=data_place\.host"
        ):
            ctx.logical_data(array, stf.data_place.host())
        with pytest.raises(ValueError, match="C-contiguous"):
            ctx.logical_data(array[::2])
    assert np.array_equal(array.copy_to_host(), [0, 2, 4, 6])


def test_foreign_interfaces_need_a_place(ctx):
    array = np.arange(6.0)
    with pytest.raises(ValueError, match=r"Interface does not say .* give dplace=data_place\.device\(d\)"):
        ctx.logical_data(Interface(array))
    data = ctx.logical_data(Interface(array), stf.data_place.host())
    assert np.array_equal(ctx.wait(data), array)


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"strides": (16,)}, ValueError, r"C-contiguous memory: got shape \(6,\) with strides \(16,\)"),
        ({"mask": object()}, TypeError, "Interface has a mask"),
        ({"typestr": "|O"}, TypeError, "Python objects cannot be"),
    ],
)
def test_interfaces_are_checked(ctx, changes, kind, text):
    with pytest.raises(kind, match=text):
        ctx.logical_data(Interface(np.arange(6.0), **changes), stf.data_place.host())


@pytest.mark.parametrize("missing", ["shape", "typestr", "data"])
def test_incomplete_interfaces_are_refused(ctx, missing):
    thing = Interface(np.arange(6.0))
    del thing.fields[missing]
    with pytest.raises(
        ValueError, match=rf"has shape, typestr and data: that of Interface lacks '{missing}'"
    ):
        ctx.logical_data(thing, stf.data_place.host())


def test_interfaces_can_be_read_only_and_structured(ctx):
    array = np.zeros(3, [("a", "f4"), ("b", "i4")])
    thing = Interface(array, data=(array.ctypes.data, True), descr=array.dtype.descr, strides=(8,))
    data = ctx.logical_data(thing, stf.data_place.host())
    assert data.readonly and data.dtype == array.dtype


def test_the_stream_of_an_interface_is_waited_for(ctx, machine):
    stream = stf.exec_place.device(0).pick_stream(ctx.place_resources)
    array = np.arange(3.0)
    data = ctx.logical_data(Interface(array, stream=int(stream)), stf.data_place.host())
    assert np.array_equal(ctx.wait(data), array)
    if machine.simulated:
        with pytest.raises(stf.DriverError, match="synchronize_stream"):
            ctx.logical_data(Interface(array, stream=1 << 60), stf.data_place.host())


# ---- Empty and filled data -------------------------------------------------------------------------------


def test_empty_data_defaults(ctx):
    data = ctx.logical_data_empty((2, 3))
    assert (data.dtype, data.shape, data.readonly) == (np.dtype(float), (2, 3), False)
    assert ctx.logical_data_empty(4, "f4").shape == (4,)
    assert ctx.logical_data_empty(np.int64(4), no_export=True).shape == (4,)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "text"),
    [
        (-1, None, ValueError, r"lengths are not negative: got shape \(-1,\)"),
        ((2, -3), None, ValueError, r"got shape \(2, -3\)"),
        (1.5, None, TypeError, "shape is an int or a sequence of ints: got 1.5"),
        ("ab", None, TypeError, "got 'ab'"),
        ((2, 1.5), None, TypeError, r"got \(2, 1.5\)"),
        (2, object, TypeError, "Python objects cannot be"),
        (2, "S", TypeError, "elements need a size"),
        ((1 << 40, 1 << 40), None, ValueError, r"at most 2\*\*63 - 1 bytes"),
    ],
)
def test_impossible_data_is_refused(ctx, shape, dtype, kind, text):
    with pytest.raises(kind, match=text):
        ctx.logical_data_empty(shape, dtype)


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, 1 + 2j, np.float32(7), np.int8(-1), np.datetime64("2020-01-01")]
)
def test_full_has_the_dtype_and_value_that_numpy_gives(ctx, value):
    expected = np.full((2, 3), value)
    result = ctx.wait(ctx.logical_data_full((2, 3), value))
    assert result.dtype == expected.dtype and np.array_equal(result, expected)


@pytest.mark.parametrize("where", [None, stf.data_place.host(), stf.data_place.device(0)])
@pytest.mark.parametrize("place", [None, stf.exec_place.host(), stf.exec_place.device(0)])
def test_full_goes_where_it_is_told(ctx, where, place):
    data = ctx.logical_data_full(5, 2, "i4", where=where, exec_place=place, name="u")
    assert data.symbol == "u" and np.array_equal(ctx.wait(data), np.full(5, 2, "i4"))


def test_zeros_and_ones(ctx):
    assert np.array_equal(ctx.wait(ctx.logical_data_zeros(3)), np.zeros(3))
    assert ctx.wait(ctx.logical_data_ones((), "i2", name="one")) == 1
    assert ctx.logical_data_ones(3, where=stf.data_place.device(0)).dtype == np.dtype(float)


@pytest.mark.parametrize(
    ("value", "dtype", "kind", "text"),
    [
        ([1, 2], None, ValueError, r"fill_value is one value: got shape \(2,\)"),
        (b"abc", None, TypeError, "elements of 1, 2, 4, 8 or 16 bytes can be filled: got .*S3 with 3"),
        (None, object, TypeError, "Python objects cannot be"),
        (300, "u1", OverflowError, "300"),
    ],
)
def test_impossible_fills_are_refused(ctx, value, dtype, kind, text):
    with pytest.raises(kind, match=text):
        ctx.logical_data_full(3, value, dtype)


def test_fill_places_are_checked(ctx):
    with pytest.raises(TypeError, match="exec_place is a place to run on: got int"):
        ctx.logical_data_full(3, 1, exec_place=0)


# ---- The objects -----------------------------------------------------------------------------------------


def test_dependencies_tell_what_they_are(ctx):
    data = ctx.logical_data_zeros(2, name="u")
    place = stf.data_place.host()
    for made, mode in ((data.read(place), 1), (data.write(place), 2), (data.rw(place), 3)):
        assert made.data is data and made.dplace == place and made.mode is stf.AccessMode(mode)
    assert stf.read(data).dplace is None
    assert repr(stf.rw(data, None)) == "logical_data(shape=(2,), dtype=float64, symbol='u').rw()"
    assert [stf.AccessMode.NONE, stf.AccessMode.READ | stf.AccessMode.WRITE] == [0, stf.AccessMode.RW]


@pytest.mark.parametrize("function", [stf.read, stf.write, stf.rw])
def test_functions_take_logical_data_only(function):
    with pytest.raises(
        TypeError, match=rf"{function.__name__}\(\) takes logical data: got ndarray; register it"
    ):
        function(np.ones(2))


@pytest.mark.parametrize("kind", [stf.logical_data, stf.dep, stf.task, stf.stf_cai])
def test_objects_come_from_their_makers(kind):
    with pytest.raises(TypeError, match=r"made|come from"):
        kind()


def test_names(ctx):
    data = ctx.logical_data_zeros(2)
    assert data.symbol is None
    data.set_symbol("v")
    assert data.symbol == "v" and "symbol='v'" in repr(data)
    with pytest.raises(TypeError, match="names are strings: got int"):
        data.set_symbol(3)
    with pytest.raises(TypeError, match="names are strings: got int"):
        ctx.logical_data_empty(2, name=3)


def test_empty_like_has_the_metadata_and_no_value(ctx):
    data = ctx.logical_data(np.ones((2, 3), "f4"), name="u").empty_like()
    assert (data.shape, data.dtype, data.symbol) == ((2, 3), np.dtype("f4"), None)
    with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
        ctx.wait(data)
    assert ctx.token().empty_like().token


def test_tokens_have_no_value(ctx):
    token = ctx.token()
    assert (token.shape, token.dtype, token.size, token.nbytes, token.token) == (None, None, 0, 0, True)
    assert repr(token) == "logical_data(token)"
    assert ctx.wait(token) is None


def test_ordering_comparisons_are_type_errors_and_equality_is_identity(ctx):
    a, b = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1)
    assert a in [a] and a != b and hash(a) != hash(b)
    with pytest.raises(TypeError):
        a > 1.0  # noqa: B015


# ---- Lifetime --------------------------------------------------------------------------------------------


class Kept(np.ndarray):
    """An array that weak references can watch."""


def test_a_source_lives_while_it_is_used_and_no_longer():
    source = np.ones(4).view(Kept)
    watch = weakref.ref(source)
    ctx = stf.context()
    data = ctx.logical_data(source)
    with on_host(ctx, data.rw()) as t:
        t.numpy(0)[:] = 2
    del source, data, t
    gc.collect()
    ctx.finalize()
    assert watch() is None


def test_dropped_data_is_written_back(machine):
    source = np.ones(4)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        with ctx.task(stf.exec_place.host(), data.rw()) as t:
            t.numpy(0)[:] = 5
        del data, t
        gc.collect()
    assert np.array_equal(source, np.full(4, 5.0))


def test_data_outlives_its_context(machine):
    with stf.context() as ctx:
        data = ctx.logical_data(np.ones(2))
    assert data.shape == (2,)
    with pytest.raises(stf.ContextClosed):
        data.empty_like()
    with stf.context() as other, pytest.raises(stf.WrongContext, match="was finalized"):
        with other.task(data.read()):
            pass
    del ctx
    gc.collect()
    del data


def test_data_dropped_in_another_thread(machine):
    import threading

    source = np.zeros(3)
    with stf.context() as ctx:
        held = [ctx.logical_data(source) for _ in range(1)] + [ctx.logical_data_zeros(8) for _ in range(50)]
        with on_host(ctx, held[0].write()) as t:
            t.numpy(0)[:] = 7
        del t
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    assert np.array_equal(source, np.full(3, 7.0))


def test_a_cycle_through_data_is_collected(machine):
    class Holder:
        pass

    ctx = stf.context()
    holder = Holder()
    holder.data, holder.self = ctx.logical_data_zeros(3), holder
    watch = weakref.ref(holder.data)
    del holder
    gc.collect()
    assert watch() is None
    ctx.finalize()
