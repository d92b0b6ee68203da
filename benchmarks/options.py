"""What the workloads' command lines share: checked numbers, common options, and the import of what measures."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from benchmarks.runner import UsageError

__all__ = ["add_machine", "add_repeats", "measuring_part", "ordinal", "positive"]


def positive(text: str) -> int:
    """Return a count from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"a count of at least 1 is needed: got {text}")
    return value


def ordinal(text: str) -> int:
    """Return a device's number from the command line."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"devices count from 0: got {text}")
    return value


def add_repeats(parser: argparse.ArgumentParser, default: int = 7) -> None:
    """Add ``--repeats``."""
    parser.add_argument(
        "--repeats",
        type=positive,
        default=default,
        metavar="N",
        help=f"rounds; the median counts ({default})",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add ``--machine``."""
    parser.add_argument("--machine", metavar="WHICH", help="cuda, or a simulated machine such as sim:h200x1")


def measuring_part(workload: str, name: str = "report") -> Any:
    """Import the module of a workload that measures, which needs the package.

    Raises
    ------
    UsageError
        If the package is not installed.
    """
    try:
        return importlib.import_module(f"benchmarks.{workload}.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stf_places":
            raise
        raise UsageError("stf_places is not installed here: `pip install -e .` in the checkout") from error
