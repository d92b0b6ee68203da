"""The kernel that `verify_places` launches: its source, its compilation with NVRTC, and the cache of what came out."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["PROBE_NAME", "PROBE_SOURCE", "cache_folder", "cached", "compile_probe", "entry_key", "load_probe"]

PROBE_NAME = "stf_places_probe"
# One record a block: the SM, and when the block began and ended on the GPU's global clock. The barrier keeps all
# threads of the block, and so the room that they take, until the first one has spun long enough.
PROBE_SOURCE = r"""
__device__ unsigned long long clock_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void stf_places_probe(unsigned long long* records, unsigned long long spin_ns) {
  if (threadIdx.x == 0) {
    const unsigned long long start = clock_ns();
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    unsigned long long now = start;
    while (now - start < spin_ns) now = clock_ns();
    unsigned long long* record = records + 3ull * blockIdx.x;
    record[0] = sm;
    record[1] = start;
    record[2] = now;
  }
  __syncthreads();
}
"""
_MAGIC = "stf_places kernel 1"
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


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


def compile_probe(arch: str, extra: str = "cu13", folder: Path | None = None) -> bytes:
    """Return the probe kernel as a cubin.

    Parameters
    ----------
    arch : str
        The chip, such as ``"sm_90"``.
    extra : str
        The package's extra that brings the compiler, for the error's text.
    folder : Path, optional
        Where compiled kernels are kept. None: nowhere.

    Raises
    ------
    ImportError
        If cuda.core or NVRTC is missing.
    """
    program, options = _import_core(extra, "Program", "ProgramOptions")
    compiler = f"NVRTC {_nvrtc_version(extra)}"

    def build() -> bytes:
        return bytes(program(PROBE_SOURCE, "c++", options(arch=arch)).compile("cubin").code)

    return cached(entry_key(PROBE_SOURCE, arch, "cubin", compiler), build, folder)


def load_probe(arch: str, extra: str = "cu13") -> Any:
    """Return the probe kernel, loaded: a cuda.core ``Kernel``, good for all devices of that chip.

    Raises
    ------
    ImportError
        If cuda.core or NVRTC is missing.

    Notes
    -----
    ``int(kernel.handle)`` is a ``CUkernel``. It lives as long as the object, which has to outlive its launches.
    """
    (object_code,) = _import_core(extra, "ObjectCode")
    return object_code.from_cubin(compile_probe(arch, extra, cache_folder())).get_kernel(PROBE_NAME)


def _missing(what: str, extra: str) -> ImportError:
    return ImportError(
        f"verify_places compiles a kernel with cuda.core (0.5 or later) and NVRTC: {what}; "
        f"pip install 'stf-places[{extra}]' brings both"
    )


def _import_core(extra: str, *names: str) -> list[Any]:
    """Return names of cuda.core, which is looked for only here."""
    try:
        core = import_module("cuda.core")
    except ImportError as error:
        raise _missing(f"cuda.core cannot be imported ({error})", extra) from error
    lacking = [name for name in names if not hasattr(core, name)]
    if lacking:
        raise _missing(f"this cuda.core has no {', '.join(lacking)}", extra)
    return [getattr(core, name) for name in names]


def _nvrtc_version(extra: str) -> str:
    try:
        status, major, minor = import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except (
        ImportError,
        RuntimeError,
    ) as error:  # cuda.bindings raises RuntimeError where the library is missing
        raise _missing(f"NVRTC cannot be loaded ({error})", extra) from error
    if int(status) != 0:
        raise _missing(f"NVRTC does not tell its version ({status!r})", extra)
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
