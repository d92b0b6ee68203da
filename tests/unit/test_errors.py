"""The exceptions and their translation from C++."""

import pickle

import pytest

from stf_places import errors
from stf_places._native.errors import throw

FROM_DRIVER = {
    "driver": errors.DriverError,
    "device_lost": errors.DeviceLost,
    "not_supported": errors.NotSupported,
    "out_of_memory": errors.OutOfMemory,
    "invalid_device": errors.InvalidDevice,
}
OTHERS = {
    "context_closed": errors.ContextClosed,
    "wrong_context": errors.WrongContext,
    "task_state": errors.TaskStateError,
    "poisoned": errors.PoisonedData,
    "read_only": errors.ReadOnlyError,
    "conflict": errors.DataRace,
    "value": ValueError,
    "index": IndexError,
    "bad_alloc": MemoryError,
    "std_exception": RuntimeError,
}
BUILT_IN = {
    errors.PartitionError: ValueError,
    errors.MapperError: ValueError,
    errors.ReadOnlyError: ValueError,
    errors.WrongContext: ValueError,
    errors.InvalidDevice: ValueError,
    errors.OutOfMemory: MemoryError,
}


@pytest.mark.parametrize("kind", FROM_DRIVER)
def test_a_failed_call_keeps_its_name_and_code(kind):
    with pytest.raises(FROM_DRIVER[kind], match=r"^rule, given, é$") as caught:
        throw(kind, "rule, given, é", call="cuCall", code=700, name="CUDA_ERROR")
    error = caught.value
    assert type(error) is FROM_DRIVER[kind]
    assert (error.call, error.code, error.name) == ("cuCall", 700, "CUDA_ERROR")


@pytest.mark.parametrize("kind", OTHERS)
def test_each_kind_has_its_exception(kind):
    with pytest.raises(OTHERS[kind]) as caught:
        throw(kind, "text")
    assert type(caught.value) is OTHERS[kind]
    assert str(caught.value) == ("the process has no memory left" if kind == "bad_alloc" else "text")


def test_an_interrupt_without_an_exception_is_a_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt):
        throw("interrupted", "text")


def test_unknown_kinds_are_named():
    with pytest.raises(ValueError, match=r"kinds are driver, .*got 'nonsense'"):
        throw("nonsense", "text")


@pytest.mark.parametrize("name", errors.__all__)
def test_all_are_stf_errors_with_the_promised_bases(name):
    cls = getattr(errors, name)
    assert issubclass(cls, errors.StfError) and issubclass(cls, RuntimeError)
    for built_in in (ValueError, MemoryError):
        assert issubclass(cls, built_in) == (BUILT_IN.get(cls) is built_in)


@pytest.mark.parametrize("cls", FROM_DRIVER.values())
def test_errors_travel_between_processes(cls):
    error = pickle.loads(pickle.dumps(cls("text", call="cuCall", code=1, name="NAME")))
    assert (type(error), str(error), error.call, error.code, error.name) == (cls, "text", "cuCall", 1, "NAME")
