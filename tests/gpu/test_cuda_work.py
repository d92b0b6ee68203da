"""What only a real GPU can show of CudaDriver: kernels, sticky errors, waits that a signal ends."""

import ctypes
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

# Adds `amount` to the int at `address`: one thread.
PTX = b"""
.version 6.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 address, .param .u32 amount)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<3>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [amount];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def checked(result):
    assert result == 0, f"CUresult {result}"


def load_function():
    """Return the CUfunction of the kernel in the current context, by the driver's own calls."""
    library = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    checked(library.cuModuleLoadData(ctypes.byref(module), PTX))
    checked(library.cuModuleGetFunction(ctypes.byref(function), module, b"add"))
    return function.value


def load_kernel():
    """Return the kernel as a CUkernel, which belongs to no context."""
    library = ctypes.CDLL("libcuda.so.1")
    code, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    checked(library.cuLibraryLoadData(ctypes.byref(code), PTX, None, None, 0, None, None, 0))
    checked(library.cuLibraryGetKernel(ctypes.byref(kernel), code, b"add"))
    return kernel.value


def arguments(address, amount):
    """Return the array of pointers to the kernel's arguments, and what it points to."""
    values = ctypes.c_uint64(address), ctypes.c_uint32(amount)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    return ctypes.addressof(pointers), (values, pointers)


@pytest.fixture
def stream(cuda):
    context = cuda.primary_context(0)
    before = cuda.current_context()
    cuda.set_current_context(context)
    made = cuda.create_stream(context)
    yield made
    cuda.destroy_stream(made)
    cuda.set_current_context(before)


@pytest.mark.parametrize("load", [load_function, load_kernel])
def test_a_kernel_runs_in_stream_order(cuda, stream, load):
    function = load()
    block = cuda.allocate_device(0, 4, stream)
    cuda.fill(block, 0, (7).to_bytes(4, "little"), 1, stream)
    for amount in (1, 10, 100):
        address, kept = arguments(block, amount)
        cuda.launch(function, stream, parameters=address)
        del kept
    found = np.zeros(1, np.uint32)
    cuda.copy(found.ctypes.data, "host", block, 0, 4, stream)
    cuda.free_device(0, block, stream)
    cuda.synchronize_stream(stream)
    assert found[0] == 118


def test_a_kernel_is_launched_from_a_thread_without_a_context(cuda, stream):
    function = load_function()
    block = cuda.allocate_device(0, 4, stream)
    cuda.fill(block, 0, b"\0", 4, stream)
    address, kept = arguments(block, 5)
    caught = []

    def body():
        try:
            cuda.launch(function, stream, parameters=address)
            assert cuda.current_context() == 0
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert caught == [] and kept
    found = np.zeros(1, np.uint32)
    cuda.copy(found.ctypes.data, "host", block, 0, 4, stream)
    cuda.free_device(0, block, stream)
    cuda.synchronize_stream(stream)
    assert found[0] == 5


def test_work_is_pending_until_it_is_done(cuda, stream):
    release = threading.Event()
    event = cuda.create_event(cuda.primary_context(0))
    cuda.host_function(stream, release.wait)
    cuda.record_event(event, stream)
    assert not cuda.query_stream(stream) and not cuda.query_event(event)
    assert cuda.query_default_streams(cuda.primary_context(0))
    release.set()
    cuda.synchronize_event(event)
    assert cuda.query_stream(stream) and cuda.query_event(event)
    cuda.destroy_event(event)


def test_a_signal_ends_a_wait(cuda, stream):
    class StopError(Exception):
        pass

    def stop(number, frame):
        raise StopError

    release = threading.Event()
    event = cuda.create_event(cuda.primary_context(0))
    cuda.host_function(stream, release.wait)
    cuda.record_event(event, stream)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for wait, handle in ((cuda.synchronize_stream, stream), (cuda.synchronize_event, event)):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(StopError):
                wait(handle)
    finally:
        signal.signal(signal.SIGALRM, before)
        release.set()
        cuda.synchronize_stream(stream)
        cuda.destroy_event(event)


def lose_the_device():
    """Write to an address that does not exist; in a process of its own, which loses the GPU."""
    from stf_places import errors
    from stf_places._native.drivers import cuda_driver

    cuda = cuda_driver()
    context = cuda.primary_context(0)
    cuda.set_current_context(context)
    stream = cuda.create_stream(context)
    address, kept = arguments(0, 1)
    cuda.launch(load_function(), stream, parameters=address)
    for call in (cuda.synchronize_stream, cuda.query_stream):
        try:
            call(stream)
        except errors.DeviceLost as error:
            print(error.code, error.name, error.call, "sticky" in str(error), bool(kept))


def test_an_illegal_address_loses_the_device(cuda):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "700 CUDA_ERROR_ILLEGAL_ADDRESS cuStreamQuery True True\n" * 2


if __name__ == "__main__":
    lose_the_device()
