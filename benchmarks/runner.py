"""The command line: finds the workload, runs it, writes the records and prints a table."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, cast

import benchmarks
from benchmarks.records import Baseline, Record

__all__ = ["UsageError", "main", "workload_names"]


class UsageError(Exception):
    """Report an option that a workload cannot use; the text is the line that the user sees."""


class Workload(Protocol):
    """What the ``__init__.py`` of a workload's folder has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the workload's options."""

    def run(self, options: argparse.Namespace) -> list[Record]:
        """Measure, check and return the records; raise `UsageError` for an option that cannot be used."""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with status 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def workload_names() -> list[str]:
    """Return the names of the workloads: the folders of this package."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.ispkg)


def summary(name: str) -> str:
    """Return the first line of a workload's documentation, without importing it."""
    source = Path(benchmarks.__path__[0], name, "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def load(name: str) -> Workload:
    """Import a workload."""
    return cast(Workload, importlib.import_module(f"benchmarks.{name}"))


def make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; of the workloads only those named in ``arguments`` are imported."""
    parser = OneLineParser(prog="benchmarks", description="Measure stf_places and its baselines in one run.")
    parser.add_argument("--list", action="store_true", help="list the workloads and leave")
    workloads = parser.add_subparsers(dest="name", metavar="NAME", parser_class=OneLineParser)
    for name in workload_names():
        options = workloads.add_parser(name, help=summary(name), description=summary(name))
        options.add_argument(
            "--json", type=Path, metavar="FILE", help="write the records here, as one JSON list"
        )
        if name in arguments:
            load(name).add_arguments(options)
    return parser


def table(records: Sequence[Record]) -> str:
    """Return the records as lines of text: value, spread, and each baseline under it."""
    lines = []
    for record in records:
        spread = record.spread
        lines.append(
            f"{record.name + ' / ' + record.case:52} {spread.median:12.3f} {record.unit:10} "
            f"({min(spread.values):.3f} to {max(spread.values):.3f}, {len(spread.values)} repeats)"
        )
        for baseline in record.baselines:
            if isinstance(baseline, Baseline):
                unit = baseline.unit or record.unit
                lines.append(f"  {baseline.name:50} {baseline.spread.median:12.3f} {unit}")
            else:
                lines.append(f"  {baseline.name:50} {'-':>12} {baseline.reason}")
    if records:
        where = records[0].environment
        kind = "simulated machine, CPU times of this computer" if where.simulated else "real"
        lines.append(f"{where.machine} ({kind}), {where.driver}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str
        What follows ``python -m benchmarks``.

    Returns
    -------
    int
        The exit status: 0, or 2 for a name or an option that cannot be used.
    """
    parser = make_parser(arguments)
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:20} {summary(name)}" for name in workload_names()))
        return 0
    if options.name is None:
        parser.error(f"a workload is needed, one of {', '.join(workload_names())}")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: no such folder: {options.json.parent}")
    try:
        records = load(options.name).run(options)
    except UsageError as error:
        parser.error(str(error))
    if options.json is not None:
        options.json.write_text(json.dumps([record.to_json() for record in records], indent=2) + "\n")
    print(table(records))
    sys.stdout.flush()
    return 0
