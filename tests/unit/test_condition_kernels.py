"""The kernel that sets conditions: how it is compiled and linked, and its arithmetic, which runs here on the CPU."""

import ctypes
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stf_places.flow.condition_kernels import CONDITION_KERNEL
from stf_places.places.compiled_kernels import compile_kernel

TYPES = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}
COMPARISONS = ("<", "<=", ">", ">=")
PRELUDE = """
#define __device__
#define __global__
static unsigned last;
"""
EPILOGUE = """
extern "C" void cudaGraphSetConditional(unsigned long long, unsigned int value) { last = value; }
extern "C" unsigned condition_after(const LoopCondition* when) {
  set_condition(1, *when);
  return last;
}
"""


class Term(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_uint64),
        ("type", ctypes.c_uint8),
        ("compare", ctypes.c_uint8),
        ("negate", ctypes.c_bool),
        ("real", ctypes.c_double),
        ("whole", ctypes.c_int64),
    ]


class LoopCondition(ctypes.Structure):
    _fields_ = [
        ("terms", Term * 8),
        ("size", ctypes.c_uint32),
        ("any", ctypes.c_bool),
        ("counter", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    ]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("kernel")
    source = folder / "kernel.cpp"
    source.write_text(PRELUDE + CONDITION_KERNEL.text + EPILOGUE)
    options = ["-std=c++17", "-shared", "-fPIC", "-Wno-invalid-offsetof"]
    subprocess.run([compiler, *options, "-o", folder / "kernel.so", source], check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def after(on_cpu, terms=(), any_of=False):
    """Return what a condition with terms (type, value, comparison, threshold, negated) is set to."""
    when, kept = LoopCondition(size=len(terms), any=any_of), []
    for at, (dtype, value, compare, threshold, negate) in enumerate(terms):
        kept.append(TYPES[dtype](value))
        field = {"real": threshold} if dtype.startswith("float") else {"whole": threshold}
        when.terms[at] = Term(
            ctypes.addressof(kept[-1]), list(TYPES).index(dtype), COMPARISONS.index(compare), negate, **field
        )
    return bool(on_cpu.condition_after(ctypes.byref(when)))


@pytest.mark.parametrize("dtype", TYPES)
def test_terms_compare_as_python_does(on_cpu, dtype):
    python = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__}
    for compare, holds in python.items():
        for value in (-1, 0, 1):
            for negate in (False, True):
                expected = holds(float(value), 0.0) != negate
                assert after(on_cpu, [(dtype, value, compare, 0, negate)]) == expected


def test_nan_compares_false(on_cpu):
    for dtype in ("float32", "float64"):
        for compare in COMPARISONS:
            for negate in (False, True):
                assert after(on_cpu, [(dtype, math.nan, compare, 0, negate)]) == negate


def test_thresholds_are_of_the_values_type(on_cpu):
    assert after(on_cpu, [("float32", 0.1, "<=", 0.1, False)])
    assert not after(on_cpu, [("int64", 2**53 + 1, "<=", 2**53, False)])


def test_all_terms_or_any(on_cpu):
    yes, no = ("int32", 1, ">", 0, False), ("int32", 1, "<", 0, False)
    for terms in ([], [yes], [no], [yes, no], [no] * 7 + [yes], [yes] * 8):
        assert after(on_cpu, terms) == all(term is yes for term in terms)
        assert after(on_cpu, terms, any_of=True) == any(term is yes for term in terms)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_counter_counts_and_is_zero_again(on_cpu, count):
    counter = ctypes.c_uint64(0)
    when = LoopCondition(counter=ctypes.addressof(counter), count=count)
    for _ in range(2):
        found = [on_cpu.condition_after(ctypes.byref(when)) for _ in range(count)]
        assert found == [1] * (count - 1) + [0] and counter.value == 0


# ---- Compilation


def test_it_is_linked_once(tmp_path):
    pytest.importorskip("cuda.core", reason="needs cuda.core")
    try:
        code = compile_kernel(CONDITION_KERNEL, "sm_90", folder=tmp_path)
    except ImportError as error:
        pytest.skip(f"needs NVRTC and cudadevrt: {error}")
    except (RuntimeError, RuntimeWarning) as error:
        pytest.skip(f"needs nvJitLink: {error}")
    assert code.startswith(b"\x7fELF") and b"set_condition" in code
    (path,) = tmp_path.iterdir()
    before = path.stat()
    assert compile_kernel(CONDITION_KERNEL, "sm_90", folder=tmp_path) == code
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


class Core:
    """Stands for cuda.core, and notes what it is asked for."""

    def __init__(self):
        self.asked = []
        self.ProgramOptions = self.LinkerOptions = dict
        self.ObjectCode = SimpleNamespace(from_library=lambda path: f"library {path}")

    def Program(self, text, kind, options):
        self.asked.append(options)
        return SimpleNamespace(compile=lambda target: f"own {target}")

    def Linker(self, *codes, options):
        self.asked += [codes, options]
        return SimpleNamespace(link=lambda target: SimpleNamespace(code=f"linked {target}".encode()))


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """Put a stand-in for the packages of cuda in place, and return it."""
    library = tmp_path / "libcudadevrt.a"
    library.write_bytes(b"library")
    found = SimpleNamespace(
        core=Core(),
        pathfinder=SimpleNamespace(find_static_lib=lambda name: str(library)),
        library=library,
        folder=tmp_path / "cache",
    )
    nvrtc = SimpleNamespace(nvrtcVersion=lambda: (0, 13, 0))
    for name, stand_in in (
        ("cuda", SimpleNamespace(__path__=[])),
        ("cuda.core", found.core),
        ("cuda.pathfinder", found.pathfinder),
        ("cuda.bindings", SimpleNamespace(__path__=[])),
        ("cuda.bindings.nvrtc", nvrtc),
    ):
        monkeypatch.setitem(sys.modules, name, stand_in)
    return found


def test_it_is_compiled_for_linking_and_linked_with_the_devices_runtime(cuda):
    assert compile_kernel(CONDITION_KERNEL, "sm_90", folder=cuda.folder) == b"linked cubin"
    assert cuda.core.asked == [
        {"arch": "sm_90", "relocatable_device_code": True},
        ("own cubin", f"library {cuda.library}"),
        {"arch": "sm_90"},
    ]
    compile_kernel(CONDITION_KERNEL, "sm_90", folder=cuda.folder)
    assert len(cuda.core.asked) == 3
    cuda.library.write_bytes(b"another version")
    compile_kernel(CONDITION_KERNEL, "sm_90", folder=cuda.folder)
    assert len(cuda.core.asked) == 6 and len(list(cuda.folder.iterdir())) == 2


def test_without_the_library_the_error_names_the_extra(cuda):
    def missing(name):
        raise RuntimeError(f"no {name} anywhere")

    cuda.pathfinder.find_static_lib = missing
    text = (
        r"^a loop in a graph compiles .*: the static library cudadevrt is not found \(no cudadevrt anywhere\)"
    )
    with pytest.raises(ImportError, match=text + r".*stf-places\[cu12\]"):
        compile_kernel(CONDITION_KERNEL, "sm_90", "cu12")


def test_without_a_pathfinder_the_error_names_the_extra(cuda, monkeypatch):
    del cuda.pathfinder.find_static_lib
    with pytest.raises(
        ImportError, match=r"cuda.pathfinder cannot find static libraries .*stf-places\[cu13\]"
    ):
        compile_kernel(CONDITION_KERNEL, "sm_90")
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(ImportError, match="cuda.pathfinder cannot find static libraries"):
        compile_kernel(CONDITION_KERNEL, "sm_90")


def test_an_old_cuda_core_is_named(cuda):
    cuda.core.ObjectCode = SimpleNamespace()
    with pytest.raises(ImportError, match="ObjectCode has no from_library"):
        compile_kernel(CONDITION_KERNEL, "sm_90")


def test_the_extras_bring_the_library():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for extra in ("cu12", "cu13"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{extra} =")]
        assert "nvidia-cuda-runtime" in line and "nvidia-nvjitlink" in line
