"""Pictures of layouts: which place owns which element."""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stf_places.partitions import Layout

__all__ = ["save_layout"]

#: Position of an element on each axis, None for the axes that are drawn.
At: TypeAlias = Sequence["SupportsIndex | None"]

#: Elements drawn along an axis at most; of longer axes, as many spread evenly.
MOST_POINTS = 1024
#: Places that a legend names at most.
MOST_NAMES = 32


def save_layout(
    layout: Layout, path: str | os.PathLike[str], *, at: At | None = None, title: str | None = None
) -> None:
    """Draw which place owns which element, one colour a place, and save the picture.

    Parameters
    ----------
    layout : Layout
        From ``partition(...).bind(shape, grid)`` or ``mapper(...).bind(shape, grid)``.
    path : str or path-like
        The file; overwritten. Its suffix is the format, such as ``.png`` or ``.svg``.
    at : sequence of (int or None), optional
        One for each axis of the array: None for an axis to draw, of which there are one or two, and the coordinate to
        draw at for the others. None: the last two axes, at the start of the others.
    title : str, optional
        None: the partition and the shape.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If `at` has neither ints nor None.
    ValueError
        If `at` is not as long as the array has axes, or draws none or more than two.
    IndexError
        If `at` lies outside the array.
    OSError
        If the file cannot be written.

    Notes
    -----
    Along an axis of more than 1024 elements, 1024 of them are drawn. Of copies, the first is drawn.

    Examples
    --------
    >>> import tempfile, os
    >>> import stf_places as stf
    >>> from stf_places.partitions import blocked, partition, whole
    >>> layout = partition(blocked("x"), whole).bind((64, 48), stf.exec_place_grid.from_devices([0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_layout(layout, os.path.join(folder, "rows.png"))
    ...     os.listdir(folder)
    ['rows.png']
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("matplotlib is not installed: pip install 'stf-places[demo]'") from error
    fixed = _checked_at(layout, at)
    drawn = [axis for axis, position in enumerate(fixed) if position is None]
    owners = _owners(layout, fixed)
    # As bytes: the picture and its legend would round fractions each in their own way.
    positions = (np.arange(layout.place_count) + 0.5) / layout.place_count
    colors = matplotlib.colormaps["turbo"](positions, bytes=True)
    figure = Figure(figsize=(8.0, 2.2 if len(drawn) == 1 else 6.0), layout="constrained")
    axes = figure.subplots()
    lengths = [layout.shape[axis] for axis in drawn]
    extent = (0, lengths[-1], lengths[0] if len(drawn) == 2 else 1, 0)
    axes.imshow(colors[owners], interpolation="nearest", aspect="auto", extent=extent)
    axes.locator_params(integer=True)
    axes.set_xlabel(f"axis {drawn[-1]}")
    if len(drawn) == 2:
        axes.set_ylabel(f"axis {drawn[0]}")
    else:
        axes.set_yticks([])
    axes.set_title(_title(layout, fixed) if title is None else title, fontsize="medium", wrap=True)
    _add_legend(axes, colors, np.unique(owners).tolist())
    figure.savefig(path)


def _checked_at(layout: Layout, at: At | None) -> list[int | None]:
    """Return the coordinate of each axis that is not drawn, None for those that are."""
    rank = len(layout.shape)
    if at is None:
        return [0] * (rank - 2) + [None] * min(rank, 2)
    try:
        fixed = [None if one is None else index(one) for one in at]
    except TypeError:
        raise TypeError(f"at has an int or None for each axis of the array: got at={at!r}") from None
    if len(fixed) != rank or not 1 <= fixed.count(None) <= 2:
        raise ValueError(
            f"at has one entry for each of the {rank} axes of shape {layout.shape}, one or two of them None: got "
            f"at={tuple(fixed)}"
        )
    for axis, (one, length) in enumerate(zip(fixed, layout.shape, strict=True)):
        if one is not None and not 0 <= one < length:
            raise IndexError(f"at lies within the shape {layout.shape}: got {one} for axis {axis}")
    return fixed


def _owners(layout: Layout, fixed: list[int | None]) -> npt.NDArray[np.int64]:
    """Return the owners of the elements to draw, as rows and columns."""
    positions = [
        _spread(length) if one is None else np.array([one])
        for one, length in zip(fixed, layout.shape, strict=True)
    ]
    columns = len(positions[max(axis for axis, one in enumerate(fixed) if one is None)])
    coords = np.stack(np.meshgrid(*positions, indexing="ij"), axis=-1)
    return layout.owner(coords).reshape(-1, columns)


def _spread(length: int) -> npt.NDArray[np.int64]:
    """Return the middles of as many equal pieces of an axis as can be drawn."""
    count = min(length, MOST_POINTS)
    return np.array([(2 * number + 1) * length // (2 * count) for number in range(count)], np.int64)


def _title(layout: Layout, fixed: list[int | None]) -> str:
    where = ", ".join(":" if one is None else str(one) for one in fixed)
    at = f" at [{where}]" if any(one is not None for one in fixed) else ""
    return f"{layout.spec!r}, shape {layout.shape}{at}"


def _add_legend(axes: Axes, colors: npt.NDArray[np.uint8], places: list[int]) -> None:
    """Name the places, or the first of very many."""
    from matplotlib.patches import Patch

    named = [Patch(color=colors[place] / 255, label=str(place)) for place in places[:MOST_NAMES]]
    more = len(places) - len(named)
    title = f"place (and {more} more)" if more else "place"
    columns = 1 + (len(named) - 1) // 16
    axes.legend(
        handles=named,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        fontsize="small",
    )
