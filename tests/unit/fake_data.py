"""What stands for logical data of a stackable context, where only its metadata matter."""

import math
import operator
from dataclasses import dataclass

import numpy as np

from stf_places.flow.conditions import cond

COMPARE = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


@dataclass(eq=False)
class FakeData:
    """Stand for logical data, of a stackable context if nothing else is said."""

    symbol: str | None = "x"
    dtype: np.dtype | None = None
    shape: tuple[int, ...] | None = (1,)
    token: bool = False
    stackable: bool = True
    __array_ufunc__ = None

    @property
    def size(self):
        return 0 if self.token else math.prod(self.shape)

    def __gt__(self, other):
        return cond(self, ">", other)

    def __lt__(self, other):
        return cond(self, "<", other)

    def __ge__(self, other):
        return cond(self, ">=", other)

    def __le__(self, other):
        return cond(self, "<=", other)


def fake(dtype="float64", symbol="x", **changes):
    return FakeData(symbol, np.dtype(dtype), **changes)
