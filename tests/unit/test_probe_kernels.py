"""The compilation of the probe."""

import pytest

from stf_places.places.compiled_kernels import compile_kernel
from stf_places.places.probe_kernels import PROBE


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_probe_compiles(arch):
    try:
        code = compile_kernel(PROBE, arch)
    except ImportError as error:
        pytest.skip(f"needs cuda.core and NVRTC: {error}")
    assert code.startswith(b"\x7fELF")
    assert PROBE.name.encode() in code


def test_the_name_is_that_of_the_source():
    assert f"void {PROBE.name}(" in PROBE.text
