"""Every name of the API to reach: whether it is there, and what brings it otherwise."""

import importlib

import pytest

import stf_places as stf

THERE = """
AccessMode AccessMode.NONE AccessMode.READ AccessMode.WRITE AccessMode.RW
CudaStream CudaStream.__cuda_stream__ CudaStream.ptr
DeviceArray DeviceArray.__cuda_array_interface__ DeviceArray.__dlpack__ DeviceArray.__dlpack_device__
DeviceArray.copy_to_device DeviceArray.copy_to_host DeviceArray.data_place DeviceArray.dtype
DeviceArray.from_host DeviceArray.nbytes DeviceArray.shape DeviceArray.size
context context.check_errors context.fence context.finalize context.host_launch context.logical_data
context.logical_data_empty context.logical_data_full context.logical_data_ones context.logical_data_zeros
context.cuda_kernel context.place_resources context.task context.token context.wait
data_place data_place.affine data_place.allocate data_place.current_device data_place.deallocate
data_place.device data_place.device_id data_place.host data_place.kind data_place.managed
data_place.green_ctx
exec_place exec_place.affine_data_place exec_place.backing_context exec_place.current_device
exec_place.from_context exec_place.green_ctx green_places
exec_place.device exec_place.dims exec_place.get_place exec_place.host exec_place.kind
exec_place.pick_stream exec_place.set_affine_data_place exec_place.size
data_place.composite exec_place_grid exec_place_grid.create exec_place_grid.from_devices
logical_data logical_data.dtype logical_data.empty_like logical_data.read logical_data.readonly
logical_data.rw logical_data.shape logical_data.symbol logical_data.write
task task.args_cai task.get_arg task.get_arg_cai task.get_grid_dims task.get_stream_at_index
task.get_stream_ptrs task.set_exec_place task.set_symbol task.stream_ptr
cuda_kernel cuda_kernel.launch
async_resources cond dep exec_place_resources machine_init read rw write
stackable_context stackable_context.graph_scope stackable_context.while_loop stackable_context.repeat
stackable_context.launchable_graph_scope stackable_context.push stackable_context.pop_prologue_shared
stackable_context.logical_data stackable_context.logical_data_empty stackable_context.logical_data_full
stackable_context.logical_data_zeros stackable_context.logical_data_ones stackable_context.task
stackable_context.host_launch stackable_context.token stackable_context.fence stackable_context.check_errors
stackable_context.finalize LaunchableGraph LaunchableGraph.launch LaunchableGraph.reset LaunchableGraph.valid
LaunchableGraph.exec_graph LaunchableGraph.stream LaunchableGraph.graph task_graph TaskGraph TaskGraph.raw
TaskGraph.graph TaskGraph.exec_graph TaskGraph.stream TaskGraph.launch TaskGraph.reset TaskGraph.finalize
""".split()

MISSING = {
    "At home in the ecosystem": """
        paths.iter_site_roots paths.IncludePaths paths.IncludePaths.as_tuple paths.get_stf_include_dir
        paths.get_include_paths paths.get_library_dir paths.get_library_path interop.numba.get_arg_numba
        interop.numba.jit interop.numba.numba_arguments interop.numba.numba_task
        interop.numba.stf_kernel_decorator interop.pytorch.pytorch_task interop.pytorch.tensor_arg
        interop.pytorch.tensor_arguments
    """,
}
MISSING_NAMES = [(name, issue) for issue, names in MISSING.items() for name in names.split()]


def is_there(name):
    """Tell whether a dotted name can be reached from the package, importing modules on the way."""
    found, path = stf, "stf_places"
    for part in name.split("."):
        path += "." + part
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("name", THERE)
def test_name_is_there(name):
    assert is_there(name)


@pytest.mark.parametrize(("name", "issue"), MISSING_NAMES)
def test_name_is_not_there_yet(name, issue):
    assert not is_there(name), f"{name} is there: list it above, and look whether {issue!r} is complete"


def test_no_name_is_listed_twice():
    names = THERE + [name for name, _ in MISSING_NAMES]
    assert len(names) == len(set(names))
