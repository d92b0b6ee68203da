"""Solve sparse linear systems with loops that the device goes round by itself.

A substance spreads over a terrain and decays; where it also flows downhill, the matrix is not symmetric. Conjugate
gradients solve the first system, BiCGSTAB the second. The host records one round: all scalars stay on the device, and
so does the decision to go on. Dot products are summed in a fixed order. The solutions are compared with SciPy's.

    python examples/solvers.py --machine sim:h200x1 --size 128
    python examples/solvers.py --place green:16  # on a partition of 16 SMs
    python examples/solvers.py --loop host       # the host looks at the residual after each round
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from command_line import describe, whole_number
from krylov import Array, BiCGStab, ConjugateGradients, Matrix, Solver
from terrain import (
    chosen_place,
    driver_of,
    elevation,
    nature,
    now_us,
    parser_with_place,
    run_example,
    transport_matrix,
)

import stf_places as stf

#: How fast the substance flows along a slope.
DOWNHILL = 20.0
#: Rounds end with this residual, as part of the right side, ...
TOLERANCE = 1e-13
#: ... or after so many.
MOST_ROUNDS = 10_000
#: How far a solution may be from SciPy's, as part of the largest value; without SciPy, the residual, as part of b.
ALLOWED = 1e-10


def solve_on_device(ctx: Any, solver: Solver, enough: float) -> str:
    """Go round in a loop of the flow; return who drove it."""
    with ctx.while_loop() as loop:
        solver.record_round()
        loop.continue_while((solver.rr > enough) & (solver.rounds < MOST_ROUNDS))
    return driver_of(loop)


def solve_from_host(ctx: Any, solver: Solver, enough: float) -> str:
    """Launch the same round again and again, and look at the residual in between."""
    ctx.push()
    solver.record_round()
    graph = ctx.pop_prologue_shared()
    graph.launch()
    while ctx.wait(solver.rr)[0] > enough and ctx.wait(solver.rounds)[0] < MOST_ROUNDS:
        graph.launch()
    graph.reset()
    return "a graph launched by the host, which waits for the residual in each round"


LOOPS = {"device": solve_on_device, "host": solve_from_host}
METHODS = {"conjugate gradients": (ConjugateGradients, 0.0), "BiCGSTAB": (BiCGStab, DOWNHILL)}


def difference(matrix: Matrix, b: Array, x: Array) -> tuple[str, float]:
    """Return what the solution was compared with, and how far it is off."""
    starts, columns, values = matrix
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.linalg import spsolve
    except ImportError:
        residual = b - np.add.reduceat(values * x[columns], starts[:-1])
        return "NumPy's residual", float(np.linalg.norm(residual) / np.linalg.norm(b))
    expected = spsolve(csr_array((values, columns, starts)), b)
    return "SciPy", float(np.abs(x - expected).max() / np.abs(expected).max())


def demonstrate(machine: Any, options: argparse.Namespace) -> bool:
    """Solve both systems and compare."""
    print(describe(machine))
    heights = elevation(options.size)
    b = np.exp(heights).ravel()
    place = chosen_place(options.place)
    worst = 0.0
    for name, (method, downhill) in METHODS.items():
        matrix = transport_matrix(heights, downhill)
        with stf.stackable_context() as ctx:  # one round, so that the kernels are compiled and loaded
            LOOPS[options.loop](ctx, method(ctx, place, matrix, b), math.inf)
        with stf.stackable_context() as ctx:
            solver = method(ctx, place, matrix, b)
            begin = now_us(machine)
            driver = LOOPS[options.loop](ctx, solver, TOLERANCE**2 * float(b @ b))
            x, rounds = np.asarray(ctx.wait(solver.x)), np.asarray(ctx.wait(solver.rounds))[0]
            took = (now_us(machine) - begin) / 1e3
        reference, off = difference(matrix, b, x)
        worst = max(worst, off)
        print(f"{name}, {b.size} unknowns: {rounds} rounds, {took:.2f} ms ({nature(machine)}); {driver}")
    verdict = "agrees with" if worst <= ALLOWED else "DIFFERS from"
    print(f"{verdict} {reference}: largest relative difference {worst:.2g}, allowed {ALLOWED:.2g}")
    return worst <= ALLOWED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = parser_with_place("solvers", "Solve sparse systems with loops on the device.")
    parser.add_argument("--loop", choices=LOOPS, default="device", help="who goes round (default: device)")
    parser.add_argument("--size", type=whole_number, default=256, help="SIZE x SIZE unknowns (default: 256)")
    return run_example(parser, argv, demonstrate)


if __name__ == "__main__":
    sys.exit(main())
