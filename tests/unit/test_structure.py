"""The layout of the code, read from the code: layers, sizes, where dlopen may stand, what an import costs."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stf_places as stf

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stf_places"
NATIVE = ROOT / "native"
PYTHON = sorted(
    path
    for folder in ("stf_places", "examples", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
SOURCES = PYTHON + sorted(
    path
    for folder in (NATIVE, ROOT / "tests" / "native")
    for path in folder.rglob("*")
    if path.suffix in {".cpp", ".hpp", ".h", ".c", ".py", ".pyx", ".pxd", ".pyi"}
)

# What each part of the Python layer may import from the package, beside itself.
ALLOWED = {
    "errors": set(),
    "_version": set(),
    "places": {"errors", "_native"},
    "machines": {"errors", "_native"},
    "flow": {"errors", "_native", "places", "partitions"},
    "partitions": {"errors", "_native"},
    "viz": {"errors", "flow", "machines", "partitions"},
    "interop": {"errors", "_native", "flow", "machines", "places", "viz"},
    "__init__": {"_version", "errors", "flow", "machines", "partitions", "places"},
}
# What each native layer may include.
INCLUDES = {"driver": {"driver"}, "core": {"core", "driver"}, "cython": {"cython", "core", "driver"}}
HEAVY = ("warp", "torch", "numba", "cupy", "matplotlib", "cuda")


def relative(path):
    return path.relative_to(ROOT).as_posix()


def imported_parts(path):
    """Return the parts of the package that a file imports, at its top and in functions."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        parts |= {name.split(".")[1] for name in names if name.startswith("stf_places.")}
    return parts


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_python_imports_go_down(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert imported_parts(path) <= ALLOWED[part] | {part}


@pytest.mark.parametrize("layer", sorted(INCLUDES))
def test_native_includes_go_down(layer):
    for path in (NATIVE / layer).rglob("*"):
        if path.suffix not in {".cpp", ".hpp", ".pyx", ".pxd"}:
            continue
        included = set(re.findall(r'#include "(\w+)/', path.read_text()))
        assert included <= INCLUDES[layer], relative(path)


def test_cuda_headers_stay_in_the_driver():
    users = {
        relative(path) for path in NATIVE.rglob("*.*pp") if re.search(r"#include <cuda", path.read_text())
    }
    assert users
    assert all(user.startswith("native/driver/cuda/") for user in users)


def test_the_native_code_uses_no_cpp_streams():
    # Where two copies of the C++ library are loaded, their locales get mixed up, and streams crash.
    streams = re.compile(r"#\s*include <(sstream|iostream|fstream|iomanip|locale|regex|format|print)>")
    for path in NATIVE.rglob("*.[ch]pp"):
        assert not streams.search(path.read_text()), relative(path)


def test_dlopen_stands_in_one_file():
    users = [
        relative(path) for path in SOURCES if path.is_relative_to(NATIVE) and "dlopen(" in path.read_text()
    ]
    assert users == ["native/driver/cuda/library.cpp"]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_stay_under_500_lines(path):
    assert path.read_text().count("\n") < 500


def body_lines(node):
    """Return a function's length without its docstring."""
    length = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        length -= node.body[0].end_lineno - node.body[0].lineno + 1
    return length


@pytest.mark.parametrize("path", PYTHON, ids=relative)
def test_functions_stay_under_50_lines(path):
    functions = [
        n
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not [f"{f.name}: {body_lines(f)}" for f in functions if body_lines(f) >= 50]


def test_importing_the_package_loads_no_other_framework_and_no_driver(tmp_path):
    program = (
        "import sys, stf_places, stf_places.viz\n"
        "import stf_places.interop.warp\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "import pathlib; print('libcuda' in pathlib.Path('/proc/self/maps').read_text())\n"
        "from stf_places._native import runtime\n"
        "print(runtime.current_or_none())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n") == ["[]", "False", "None", ""]
    assert done.stderr == ""


@pytest.mark.parametrize("name", stf.__all__)
def test_public_name_is_no_module_as_well(name):
    assert hasattr(stf, name)
    assert importlib.util.find_spec(f"stf_places.{name}") is None


def test_public_names_are_listed_once_and_sorted():
    assert list(stf.__all__) == sorted(set(stf.__all__))


def test_public_names_are_documented():
    documented = {name for name in stf.__all__ if getattr(stf, name).__doc__}
    for stub in (NATIVE / "cython").glob("*.pyi"):
        definitions = (node for node in ast.parse(stub.read_text()).body if hasattr(node, "name"))
        documented |= {node.name for node in definitions if ast.get_docstring(node)}
    assert set(stf.__all__) - documented == set()


def test_each_compiled_module_has_its_stub():
    cython = NATIVE / "cython"
    assert {path.stem for path in cython.glob("*.pyx")} == {path.stem for path in cython.glob("*.pyi")}


def test_data_and_stubs_are_installed():
    native = Path(importlib.util.find_spec("stf_places._native").origin).parent
    assert {path.stem for path in native.glob("*.pyi")} == {
        path.stem for path in (NATIVE / "cython").glob("*.pyi")
    }
    assert (native.parent / "lib" / "libstf_places.so").is_file()
    package = Path(stf.__file__).parent
    assert (package / "py.typed").is_file()
    assert {path.stem for path in (package / "machines" / "data").glob("*.json")} >= {
        "tiny", "h200x1", "h200x2", "h200x4", "h200x8", "nopeer2",
    }  # fmt: skip


def test_development_requirements_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    assert set(project["build-system"]["requires"]) <= set(groups["build"])
    assert set(project["project"]["dependencies"]) <= set(groups["develop"])
    assert set(project["project"]["optional-dependencies"]["test"]) <= set(groups["develop"])
