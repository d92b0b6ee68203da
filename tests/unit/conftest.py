"""Programs on the stand-in for libcuda of tests/native/fake_libcuda, each in a process of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "native" / "fake_libcuda").glob("*.c"))
PRELUDE = """
import os, sys
from stf_places import errors
from stf_places._native.drivers import cuda_driver

def failure(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except errors.StfError as error:
        return error
    raise AssertionError("nothing was raised")
"""


@pytest.fixture(scope="session")
def fake_libcuda(tmp_path_factory):
    """Build the stand-in and return its folder."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("fake_libcuda")
    options = ["-shared", "-fPIC", "-O1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([compiler, *options, *map(str, SOURCES)], check=True)
    return folder


@pytest.fixture
def run(fake_libcuda):
    """Return a function that runs a program on the stand-in and returns what it printed."""

    def start(program, *arguments, **settings):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(fake_libcuda),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **settings,
        }
        environment.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        command = (
            [sys.executable, *arguments] if program is None else [sys.executable, "-c", PRELUDE + program]
        )
        done = subprocess.run(
            command,
            env=environment,
            cwd=fake_libcuda,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return start


@pytest.fixture
def look(run, tmp_path, request):
    """Return a function that runs a program behind its module's PRELUDE; it gives the output and the calls made."""

    def start(program, **settings):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        out = run(request.module.PRELUDE + program, FAKE_LOG=str(log), **settings)
        return out, [line[1:] for line in log.read_text().splitlines() if line.startswith("!")]

    return start
