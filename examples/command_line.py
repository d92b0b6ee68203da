"""Read the command line of an example and open its machine."""

from __future__ import annotations

import argparse
import warnings
from contextlib import nullcontext
from typing import Any, NoReturn

import stf_places as stf


class OneLineParser(argparse.ArgumentParser):
    """Say what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def make_parser(name: str, description: str) -> OneLineParser:
    """Return a parser with the option that all examples have."""
    parser = OneLineParser(prog=name, description=description)
    parser.add_argument("--machine", help="cuda, sim:h200x1, sim:FILE.json, ... (default: the environment's)")
    return parser


def whole_number(text: str) -> int:
    """Return a count from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on: got {text!r}")
    return int(text)


def chosen_machine(name: str | None) -> Any:
    """Return the machine as a context manager; the output says what it is, so no warning needs to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stf.SimulatedMachineWarning)
        return stf.use_machine(name) if name else nullcontext(stf.machine())


def describe(machine: Any) -> str:
    """Return which machine it is, and what its times are worth."""
    device = machine.devices[0]
    if machine.simulated:
        return f"machine: {device.name}, {machine.name}; all times are SIMULATED, no GPU was measured"
    return f"machine: {device.name}, {device.sm_count} SMs; times are measured"
