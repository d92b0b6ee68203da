"""C++ parts of baselines: compiled with the system's compiler when they run, and loaded."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["Unavailable", "load_library"]


class Unavailable(Exception):
    """Report why raw calls cannot be timed here."""


def compiler() -> list[str]:
    """Return the system's C++ compiler: ``CXX``, or the first that is found.

    Raises
    ------
    Unavailable
        If there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    raise Unavailable(f"no C++ compiler here: looked for {shlex.join(chosen) or 'c++, g++, clang++'}")


def load_library(source: Path) -> ctypes.CDLL:
    """Compile a C++ source in a temporary folder and load it.

    Parameters
    ----------
    source : Path
        A file that needs no headers but the compiler's own.

    Raises
    ------
    Unavailable
        If there is no compiler, or it fails.
    """
    command = compiler()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, f"{source.stem}.so")
        options = ["-O2", "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
        try:
            subprocess.run([*command, *options], capture_output=True, text=True, check=True, timeout=300)
            return ctypes.CDLL(str(library))
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{command[0]} failed: {error.stderr.strip().splitlines()[-1:]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{command[0]}: {error}") from error
