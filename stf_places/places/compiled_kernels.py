"""Kernels that the package compiles at run time: with NVRTC through cuda.core, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stf_places._native.places import exec_place

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = [
    "KernelSource",
    "cache_folder",
    "cached",
    "compile_kernel",
    "entry_key",
    "kernel_for",
    "load_kernel",
]

_MAGIC = "stf_places kernel 1"
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class KernelSource:
    """Say what a kernel is compiled from.

    Parameters
    ----------
    name : str
        Name of the function, which has C linkage.
    text : str
        The CUDA C++ text; it includes nothing.
    user : str
        Whoever needs it, for the error where the compiler is missing.
    libraries : tuple of str
        Static libraries of the toolkit that it is linked with, such as ``"cudadevrt"``.
    """

    name: str
    text: str
    user: str
    libraries: tuple[str, ...] = ()


def cache_folder() -> Path | None:
    """Return the folder of compiled kernels: ``stf_places`` in XDG_CACHE_HOME, else in ``~/.cache``.

    Returns
    -------
    Path or None
        None when the user has no home. As XDG says, a relative XDG_CACHE_HOME counts as unset.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "stf_places"
    try:
        return Path.home() / ".cache" / "stf_places"
    except RuntimeError:
        return None


def entry_key(source: str, arch: str, target: str, compiler: str) -> str:
    """Return the name of a compiled kernel: a hash of everything that it depends on.

    Parameters
    ----------
    source : str
        The CUDA C++ text.
    arch : str
        The chip, such as ``"sm_90"``.
    target : str
        What it is compiled to, such as ``"cubin"``.
    compiler : str
        The compiler and its version.
    """
    return hashlib.sha256(json.dumps([_MAGIC, source, arch, target, compiler]).encode()).hexdigest()


def cached(key: str, build: Callable[[], bytes], folder: Path | None) -> bytes:
    """Return the entry of a key, built and kept if there is no good one.

    Parameters
    ----------
    key : str
        From `entry_key`.
    build : callable
        Returns the content; called only when it is needed. What it raises goes on.
    folder : Path or None
        Where entries lie; made with mode 0700. None keeps nothing.

    Notes
    -----
    An entry counts if it is a file of this user's that others cannot write, and its header holds the key and the
    hash of its content. Everything else is built again and replaced at once. A folder that cannot be used is no
    error: nothing is kept then.
    """
    if folder is None or not _prepared(folder):
        return build()
    path = folder / f"{key}.kernel"
    content = _read(path, key)
    if content is None:
        content = build()
        with suppress(OSError):
            _write(path, key, content)
    return content


def compile_kernel(source: KernelSource, arch: str, extra: str = "cu13", folder: Path | None = None) -> bytes:
    """Return a kernel as a cubin.

    Parameters
    ----------
    source : KernelSource
        What to compile.
    arch : str
        The chip, such as ``"sm_90"``.
    extra : str
        The package's extra that brings the compiler, for the error's text.
    folder : Path, optional
        Where compiled kernels are kept. None: nowhere.

    Raises
    ------
    ImportError
        If cuda.core, NVRTC or a library is missing.
    """
    program, options = _import_core(source.user, extra, "Program", "ProgramOptions")
    compiler = f"NVRTC {_nvrtc_version(source.user, extra)}"
    paths = [_library(source.user, extra, name) for name in source.libraries]
    compiler += "".join(f" {hashlib.sha256(Path(path).read_bytes()).hexdigest()}" for path in paths)

    def build() -> bytes:
        if paths:
            return _linked(source, arch, extra, paths)
        return bytes(program(source.text, "c++", options(arch=arch)).compile("cubin").code)

    return cached(entry_key(source.text, arch, "cubin", compiler), build, folder)


@cache
def load_kernel(source: KernelSource, arch: str, extra: str = "cu13") -> Any:
    """Return a kernel, loaded: a cuda.core ``Kernel``, good for all devices of that chip.

    Raises
    ------
    ImportError
        If cuda.core or NVRTC is missing.

    Notes
    -----
    ``int(kernel.handle)`` is a ``CUkernel``. It lives as long as the object, which has to outlive its launches: hence
    each is loaded once and kept, a few kilobytes.
    """
    (object_code,) = _import_core(source.user, extra, "ObjectCode")
    code = compile_kernel(source, arch, extra, cache_folder())
    return object_code.from_cubin(code).get_kernel(source.name)


def kernel_for(driver: DriverHandle, device: int, source: KernelSource) -> int:
    """Return the ``CUkernel`` of a kernel for a device, compiled and loaded at the first call for its chip.

    Parameters
    ----------
    driver : DriverHandle
        A real driver.
    device : int
        Ordinal of the device.
    source : KernelSource
        What to compile.

    Returns
    -------
    int
        For `DriverHandle.launch` on any stream of the device. The stream alone names the SMs: launch with the
        device's primary context current, also on streams of green contexts.

    Raises
    ------
    ImportError
        If cuda.core or NVRTC is missing.
    InvalidDevice
        If there is no such device.
    """
    found = driver.device_properties(device)
    arch = f"sm_{found['compute_major']}{found['compute_minor']}"
    with exec_place.device(device):
        return int(load_kernel(source, arch, f"cu{driver.version() // 1000}").handle)


def _missing(user: str, what: str, extra: str) -> ImportError:
    return ImportError(
        f"{user} compiles a kernel with cuda.core (0.5 or later) and NVRTC: {what}; "
        f"pip install 'stf-places[{extra}]' brings both"
    )


def _import_core(user: str, extra: str, *names: str) -> list[Any]:
    """Return names of cuda.core, which is looked for only here."""
    try:
        core = import_module("cuda.core")
    except ImportError as error:
        raise _missing(user, f"cuda.core cannot be imported ({error})", extra) from error
    lacking = [name for name in names if not hasattr(core, name)]
    if lacking:
        raise _missing(user, f"this cuda.core has no {', '.join(lacking)}", extra)
    return [getattr(core, name) for name in names]


def _library(user: str, extra: str, name: str) -> str:
    """Return the path of a static library of the toolkit."""
    try:
        find = import_module("cuda.pathfinder").find_static_lib
    except (ImportError, AttributeError) as error:
        raise _missing(user, f"cuda.pathfinder cannot find static libraries ({error})", extra) from error
    try:
        return str(find(name))
    except RuntimeError as error:
        raise _missing(user, f"the static library {name} is not found ({error})", extra) from error


def _linked(source: KernelSource, arch: str, extra: str, paths: list[str]) -> bytes:
    """Return a cubin of the source and the libraries at these paths."""
    names = ("Program", "ProgramOptions", "Linker", "LinkerOptions", "ObjectCode")
    program, options, linker, linker_options, object_code = _import_core(source.user, extra, *names)
    if not hasattr(object_code, "from_library"):
        raise _missing(source.user, "this cuda.core's ObjectCode has no from_library", extra)
    own = program(source.text, "c++", options(arch=arch, relocatable_device_code=True)).compile("cubin")
    libraries = [object_code.from_library(path) for path in paths]
    return bytes(linker(own, *libraries, options=linker_options(arch=arch)).link("cubin").code)


def _nvrtc_version(user: str, extra: str) -> str:
    try:
        status, major, minor = import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except (
        ImportError,
        RuntimeError,
    ) as error:  # cuda.bindings raises RuntimeError where the library is missing
        raise _missing(user, f"NVRTC cannot be loaded ({error})", extra) from error
    if int(status) != 0:
        raise _missing(user, f"NVRTC does not tell its version ({status!r})", extra)
    return f"{major}.{minor}"


def _is_safe(found: os.stat_result) -> bool:
    """Tell whether nobody but this user can have written something."""
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_CAN_WRITE


def _prepared(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_safe(folder.stat())
    except OSError:
        return False


def _header(key: str, content: bytes) -> bytes:
    return f"{_MAGIC} {key} {hashlib.sha256(content).hexdigest()}\n".encode()


def _read(path: Path, key: str) -> bytes | None:
    """Return an entry's content; None where there is no good one."""
    try:
        # O_NONBLOCK: a pipe of that name must not block.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if not _is_safe(os.fstat(file.fileno())):
                return None
            header, content = file.readline(4096), file.read()
    except OSError:
        return None
    return content if header == _header(key, content) else None


def _write(path: Path, key: str, content: bytes) -> None:
    """Put an entry in place, so that readers see all of it or nothing."""
    opened, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(_header(key, content) + content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
