"""Builds the C++ tests in a temporary folder and runs them: plain, with planted mistakes, under sanitizers."""

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = [f"random_programs_planted_{mistake}" for mistake in (1, 2, 3)]


def run(*command, **options):
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=900, check=False, **options
    )


@functools.cache
def missing_capability():
    """Say what the machine lacks for building, None if nothing."""
    if shutil.which("cmake") is None:
        return "needs cmake"
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return f"needs a C++ compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "needs the headers of Python"
    headers = run(sys.executable, ROOT / "native" / "find_headers.py")
    return headers.stderr.strip() if headers.returncode else None


class Build:
    """A build folder of native/ with some flags; targets are made when they are asked for."""

    def __init__(self, folder, sanitize):
        self.folder = folder
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        self.checked(
            "cmake", "-S", ROOT / "native", "-B", folder, *generator,
            "-DSTF_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=", f"-DSTF_SANITIZE={sanitize}",
            f"-DCMAKE_CXX_FLAGS={'-O0' if sanitize else '-O1'}",  # compiling is what takes the time
            f"-DPython_EXECUTABLE={sys.executable}",
        )  # fmt: skip

    def checked(self, *command):
        done = run(*command)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        return done.stdout

    def make(self, *targets):
        self.checked("cmake", "--build", self.folder, "--parallel", "2", "--target", *targets)

    def run(self, target, *arguments):
        return self.checked(self.folder / "native_tests" / target, *arguments)


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Make build folders by sanitizers, each at most once."""
    if missing_capability() is not None:
        pytest.skip(missing_capability())

    @functools.cache
    def made(sanitize=""):
        return Build(tmp_path_factory.mktemp("native"), sanitize)

    return made


def machine_tests():
    return sorted(path.stem for path in (ROOT / "tests" / "native").glob("*_test.cpp"))


def test_random_programs_agree_with_the_reference(build):
    plain = build()
    plain.make("random_programs", *PLANTED, *machine_tests())  # all at once: no core stays idle
    assert "2000 programs went well" in plain.run("random_programs", "--programs", "2000")


def test_random_programs_survive_failing_calls(build):
    build().make("random_programs")
    assert "2000 programs went well" in build().run("random_programs", "--programs", "2000", "--faults", "1")


@pytest.mark.parametrize("faults", ["0", "1"])
def test_random_programs_give_the_same_in_graphs(build, faults):
    build().make("random_programs")
    arguments = ("--programs", "2000", "--graphs", "1", "--faults", faults)
    assert "2000 programs went well" in build().run("random_programs", *arguments)


def test_random_programs_give_the_same_in_scopes(build):
    build().make("random_programs")
    assert "2000 programs went well" in build().run("random_programs", "--programs", "2000", "--scopes", "1")


@pytest.mark.parametrize("graphs", ["0", "1"])
@pytest.mark.parametrize("target", PLANTED)
def test_planted_mistakes_are_found(build, target, graphs):
    build().make(target)
    assert "repeat with --program" in build().run(target, "--graphs", graphs)


@pytest.mark.parametrize("target", machine_tests())
def test_the_simulated_machine(build, target):
    build().make(target)
    assert "FAIL" not in build().run(target)


def test_nothing_is_wrong_under_address_and_undefined_sanitizers(build):
    checked = build("address,undefined")
    checked.make("random_programs", "sim_memory_test")
    assert "went well" in checked.run("random_programs", "--programs", "300")
    assert "went well" in checked.run("random_programs", "--programs", "300", "--faults", "1")
    assert "went well" in checked.run(
        "random_programs", "--programs", "300", "--graphs", "1", "--faults", "1"
    )
    assert "went well" in checked.run("random_programs", "--programs", "300", "--scopes", "1")
    assert "FAIL" not in checked.run("sim_memory_test")


def test_nothing_is_wrong_under_the_thread_sanitizer(build):
    checked = build("thread")
    checked.make("sim_threads_test", "partition_threads_test")
    for target in ("sim_threads_test", "partition_threads_test"):
        assert "FAIL" not in checked.run(target)
