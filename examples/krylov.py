"""Conjugate gradients and BiCGSTAB, as tasks of one round: sparse rows, vectors and scalars are all data of a context.

Dot products are summed in a fixed order, so that every run rounds alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import warp as wp

import stf_places as stf
from stf_places.interop import warp as stf_warp

Array: TypeAlias = npt.NDArray[Any]
#: Where the rows begin, the columns and the values of the entries.
Matrix: TypeAlias = tuple[Array, Array, Array]

if TYPE_CHECKING:
    Real: TypeAlias = Any
    Whole: TypeAlias = Any
else:
    Real = wp.array(dtype=wp.float64)
    Whole = wp.array(dtype=wp.int32)


@wp.kernel
def multiply(starts: Whole, columns: Whole, values: Real, x: Real, y: Real) -> None:
    row = wp.tid()
    total = wp.float64(0.0)
    for at in range(starts[row], starts[row + 1]):  # type: ignore[operator]
        total += values[at] * x[columns[at]]
    y[row] = total


@wp.kernel
def products(x: Real, y: Real, out: Real) -> None:
    i = wp.tid()
    out[i] = x[i] * y[i]


@wp.kernel
def step(above: Real, below: Real, p: Real, q: Real, x: Real, r: Real) -> None:
    """Go along p, so far that the residual falls, along q = A p."""
    i = wp.tid()
    x[i] += above[0] / below[0] * p[i]
    r[i] -= above[0] / below[0] * q[i]


@wp.kernel
def turn(new_rr: Real, rr: Real, r: Real, p: Real) -> None:
    """Choose the next direction of conjugate gradients."""
    i = wp.tid()
    p[i] = r[i] + new_rr[0] / rr[0] * p[i]


@wp.kernel
def stabilise(ts: Real, tt: Real, t: Real, x: Real, r: Real) -> None:
    """Go along the residual of BiCGSTAB, so far that it falls most."""
    i = wp.tid()
    x[i] += ts[0] / tt[0] * r[i]
    r[i] -= ts[0] / tt[0] * t[i]


@wp.kernel
def turn_stabilised(new_rho: Real, rv: Real, ts: Real, tt: Real, v: Real, r: Real, p: Real) -> None:
    """Choose the next direction of BiCGSTAB."""
    i = wp.tid()
    p[i] = r[i] + new_rho[0] / rv[0] * (tt[0] / ts[0] * p[i] - v[i])


@wp.kernel
def keep(latest: Real, value: Real) -> None:
    value[0] = latest[0]


@wp.kernel
def count(rounds: Whole) -> None:
    rounds[0] += 1


class Solver:
    """Hold what both methods need: the system, the solution from 0 on, and what the loop asks for."""

    def __init__(self, ctx: Any, place: Any, matrix: Matrix, b: Array) -> None:
        self.ctx, self.place, self.size = ctx, place, b.size
        self.matrix = [ctx.logical_data(part).read() for part in matrix]
        self.x = ctx.logical_data(np.zeros_like(b), name="x")
        self.r, self.p = ctx.logical_data(b.copy(), name="r"), ctx.logical_data(b.copy(), name="p")
        self.rr = ctx.logical_data(np.array([b @ b]), name="rr")
        self.rounds = ctx.logical_data(np.zeros(1, np.int32), name="rounds")

    def submit(self, kernel: Any, threads: int, *dependencies: Any) -> None:
        """Submit a kernel whose arguments are the data."""
        with self.ctx.task(self.place, *dependencies, symbol=kernel.key) as t:
            arrays = [stf_warp.array(t, i) for i in range(len(dependencies))]
            stf_warp.launch(t, kernel, dim=threads, inputs=arrays)

    def times(self, x: Any) -> Any:
        """Return the matrix times a vector."""
        y = self.ctx.logical_data_empty(self.size, np.float64)
        self.submit(multiply, self.size, *self.matrix, x.read(), y.write())
        return y

    def dot(self, x: Any, y: Any) -> Any:
        """Return the dot product of two vectors, as data of one element."""
        out = self.ctx.logical_data_empty(self.size, np.float64)
        self.submit(products, self.size, x.read(), y.read(), out.write())
        return stf.reduce(self.ctx, out, "sum", self.place, symbol="dot")

    def record_round(self) -> None:
        """Submit the tasks of one round; called once."""
        raise NotImplementedError


class ConjugateGradients(Solver):
    """Solve with a symmetric positive definite matrix (Hestenes and Stiefel, 1952)."""

    def record_round(self) -> None:
        """Go along the direction, and choose the next one."""
        p, r, x, rr = self.p, self.r, self.x, self.rr
        q = self.times(p)
        pq = self.dot(p, q)
        self.submit(step, self.size, rr.read(), pq.read(), p.read(), q.read(), x.rw(), r.rw())
        new_rr = self.dot(r, r)
        self.submit(turn, self.size, new_rr.read(), rr.read(), r.read(), p.rw())
        self.submit(keep, 1, new_rr.read(), rr.write())
        self.submit(count, 1, self.rounds.rw())


class BiCGStab(Solver):
    """Solve with any matrix (van der Vorst, 1992)."""

    def __init__(self, ctx: Any, place: Any, matrix: Matrix, b: Array) -> None:
        super().__init__(ctx, place, matrix, b)
        self.shadow = ctx.logical_data(b.copy(), name="shadow")
        self.rho = ctx.logical_data(np.array([b @ b]), name="rho")

    def record_round(self) -> None:
        """Go along the direction, then along the residual."""
        p, r, x, rho = self.p, self.r, self.x, self.rho
        v = self.times(p)
        rv = self.dot(self.shadow, v)
        self.submit(step, self.size, rho.read(), rv.read(), p.read(), v.read(), x.rw(), r.rw())
        t = self.times(r)
        ts, tt = self.dot(t, r), self.dot(t, t)
        omega = ts.read(), tt.read()
        self.submit(stabilise, self.size, *omega, t.read(), x.rw(), r.rw())
        new_rho = self.dot(self.shadow, r)
        self.submit(turn_stabilised, self.size, new_rho.read(), rv.read(), *omega, v.read(), r.read(), p.rw())
        self.submit(keep, 1, new_rho.read(), rho.write())
        self.submit(keep, 1, self.dot(r, r).read(), self.rr.write())
        self.submit(count, 1, self.rounds.rw())
