"""Rules that say how one axis of an array is laid over axes of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Literal, SupportsIndex, TypeAlias

from stf_places.errors import PartitionError

__all__ = ["AxisRule", "block_cyclic", "blocked", "cyclic", "tiled", "whole"]

Kind: TypeAlias = Literal["whole", "blocked", "cyclic", "block_cyclic", "tiled"]

#: What the kinds that have a block length call it.
_LENGTH_NAMES = {"block_cyclic": "block", "tiled": "tile"}
_KINDS = ("whole", "blocked", "cyclic", *_LENGTH_NAMES)


def _checked_axes(kind: str, axes: object) -> tuple[str, ...]:
    if not isinstance(axes, tuple) or not all(isinstance(axis, str) for axis in axes):
        raise TypeError(f"{kind} takes names of grid axes, as in {kind}('x', ...): got {axes!r}")
    if kind == "whole":
        if axes:
            raise PartitionError(f"whole takes no grid axis: got {axes!r}; blocked{axes!r} cuts the axis")
        return axes
    if not axes:
        raise PartitionError(
            f"{kind} takes one grid axis or more: got none; the rule of an axis that is not cut is whole"
        )
    if len(set(axes)) != len(axes):
        raise PartitionError(f"a grid axis is used once: got {kind}{axes!r}")
    return axes


def _checked_block(kind: str, block: object) -> int:
    name = _LENGTH_NAMES[kind]
    if isinstance(block, bool) or not hasattr(type(block), "__index__"):
        raise TypeError(
            f"{kind} takes {name}, an int, as in {kind}('x', {name}=64): got {block!r} ({type(block).__name__})"
        )
    length = index(block)  # type: ignore[arg-type]
    if length < 1:
        raise PartitionError(f"{name} is 1 or more: got {name}={length}")
    return length


@dataclass(frozen=True, repr=False)
class AxisRule:
    """Say how one axis of an array is cut into blocks, and which parts of a grid have them.

    Made by `blocked`, `cyclic`, `block_cyclic` and `tiled`; `whole` is one.

    Parameters
    ----------
    kind : {"whole", "blocked", "cyclic", "block_cyclic", "tiled"}
        The rule.
    axes : tuple of str
        Names of grid axes, the first varying slowest; empty for ``"whole"`` alone.
    block : int, optional
        Elements of a block, for ``"block_cyclic"`` and ``"tiled"`` alone.

    Raises
    ------
    TypeError
        If an axis is no string, or `block` is no int.
    PartitionError
        If the kind is unknown, an axis is missing, unexpected or named twice, or `block` is below 1, missing or
        unexpected.

    Examples
    --------
    >>> AxisRule("blocked", ("gpu", "sm"))
    blocked('gpu', 'sm')
    >>> AxisRule("blocked", ("gpu",)).block_length(10, 4)
    3
    """

    kind: Kind
    axes: tuple[str, ...] = ()
    block: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.kind not in _KINDS:
            raise PartitionError(f"a rule is one of {', '.join(_KINDS)}: got {self.kind!r}")
        object.__setattr__(self, "axes", _checked_axes(self.kind, self.axes))
        if self.kind in _LENGTH_NAMES:
            object.__setattr__(self, "block", _checked_block(self.kind, self.block))
        elif self.block is not None:
            raise PartitionError(
                f"{self.kind} has no block length: got {self.block!r}; block_cyclic(axis, block) has one"
            )

    def block_length(self, length: int, parts: int) -> int:
        """Return the elements of each block but the last of an axis.

        Parameters
        ----------
        length : int
            Elements of the array axis, 1 or more.
        parts : int
            Places along the grid axes, 1 or more.

        Returns
        -------
        int
            Block number b belongs to part ``b % parts``.
        """
        if self.kind == "whole":
            return length
        if self.kind == "blocked":
            return -(-length // parts)
        return min(self.block or 1, length)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        if self.kind == "whole":
            return "whole"
        arguments = [repr(axis) for axis in self.axes]
        if self.block is not None:
            arguments.append(f"{_LENGTH_NAMES[self.kind]}={self.block}")
        return f"{self.kind}({', '.join(arguments)})"


#: The rule of an axis that is not cut: each place that has a part of the array has this axis in full length.
whole = AxisRule("whole")


def blocked(*axes: str) -> AxisRule:
    """Return the rule that cuts an axis into one block for each place.

    Parameters
    ----------
    *axes : str
        Names of grid axes, the first varying slowest.

    Returns
    -------
    AxisRule
        Over p places, blocks of ``ceil(n / p)`` elements: the last one shorter, and places behind it without any.

    Raises
    ------
    TypeError
        If a name is no string.
    PartitionError
        If there is none, or one stands twice.

    Examples
    --------
    >>> blocked("gpu", "sm")
    blocked('gpu', 'sm')
    """
    return AxisRule("blocked", axes)


def cyclic(*axes: str) -> AxisRule:
    """Return the rule that deals single elements out in turn.

    Parameters
    ----------
    *axes : str
        Names of grid axes, the first varying slowest.

    Returns
    -------
    AxisRule
        Element i belongs to part ``i % p`` of p.

    Raises
    ------
    TypeError
        If a name is no string.
    PartitionError
        If there is none, or one stands twice.

    Examples
    --------
    >>> cyclic("gpu")
    cyclic('gpu')
    """
    return AxisRule("cyclic", axes)


def block_cyclic(*axes: str | SupportsIndex, block: SupportsIndex | None = None) -> AxisRule:
    """Return the rule that deals blocks of equal length out in turn.

    Parameters
    ----------
    *axes : str
        Names of grid axes, the first varying slowest. The block length may follow as the last argument.
    block : int
        Elements of a block, 1 or more; the axis' last block may be shorter.

    Returns
    -------
    AxisRule
        Element i belongs to part ``i // block % p`` of p.

    Raises
    ------
    TypeError
        If a name is no string, or `block` is no int, missing, or given twice.
    PartitionError
        If there is no name, one stands twice, or `block` is below 1.

    Examples
    --------
    >>> block_cyclic("gpu", 64) == block_cyclic("gpu", block=64)
    True
    """
    return _with_length("block_cyclic", axes, block)


def tiled(*axes: str | SupportsIndex, tile: SupportsIndex | None = None) -> AxisRule:
    """Return the rule that deals tiles out in turn: `block_cyclic` under the name that CUDASTF gives it.

    Parameters
    ----------
    *axes : str
        Names of grid axes, the first varying slowest. The tile length may follow as the last argument.
    tile : int
        Elements of a tile along this array axis, 1 or more.

    Returns
    -------
    AxisRule
        Element i belongs to part ``i // tile % p`` of p.

    Raises
    ------
    TypeError
        If a name is no string, or `tile` is no int, missing, or given twice.
    PartitionError
        If there is no name, one stands twice, or `tile` is below 1.

    References
    ----------
    CUDASTF, ``tiled_partition``.

    Examples
    --------
    >>> tiled("gpu", tile=64)
    tiled('gpu', tile=64)
    """
    return _with_length("tiled", axes, tile)


def _with_length(
    kind: Literal["block_cyclic", "tiled"], axes: tuple[object, ...], block: SupportsIndex | None
) -> AxisRule:
    """Return a rule whose block length is given by name or stands behind the axes."""
    if axes and hasattr(type(axes[-1]), "__index__"):
        if block is not None:
            name = _LENGTH_NAMES[kind]
            raise TypeError(
                f"{kind} takes {name} once: got {axes[-1]!r} behind the axes and {name}={block!r}"
            )
        axes, block = axes[:-1], axes[-1]  # type: ignore[assignment]
    return AxisRule(kind, axes, block)  # type: ignore[arg-type]
