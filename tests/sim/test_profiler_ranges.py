"""Ranges by task symbol, as a profiler sees them that is loaded through NVTX's own door."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import stf_places as stf

stf.use_machine("sim:tiny")
with stf.context() as ctx:
    x = ctx.logical_data(np.zeros(4))
    with ctx.task(stf.exec_place.device(0), x.rw(), symbol="outer") as t:
        pass
    try:
        with ctx.task(x.rw(), symbol="failing"):
            raise KeyError
    except KeyError:
        pass
"""


@pytest.fixture(scope="module")
def profiler(tmp_path_factory):
    """Compile the profiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, root / "native" / "find_headers.py"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip("needs the NVTX headers, a build requirement")
    library = tmp_path_factory.mktemp("profiler") / "libranges.so"
    includes = [f"-I{folder}" for folder in found.stdout.strip().split(";")]
    source = root / "tests" / "native" / "profiler" / "ranges.c"
    subprocess.run([compiler, "-shared", "-fPIC", *includes, "-o", library, source], check=True)
    return library


def test_tasks_are_ranges(profiler, tmp_path):
    log = tmp_path / "ranges.txt"
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(profiler), "RANGES_FILE": str(log)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, cwd=tmp_path)
    assert log.read_text().splitlines() == [
        "start 1 outer",
        "end 1",
        "start 2 failing",
        "end 2",
    ]
