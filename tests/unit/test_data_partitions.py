"""Partitions of arrays over grids: rules, owners, boxes, pages, mappers, and what their errors say."""

import doctest
import importlib
import json
import pickle
import re
from dataclasses import FrozenInstanceError, dataclass
from math import prod
from pathlib import Path

import numpy as np
import pytest
from drawn_partitions import GRID, LINE, Grid, all_coords, bindings, brute_owners
from hypothesis import given
from hypothesis import strategies as st

import stf_places as stf
import stf_places.partitions as p
from stf_places.errors import PartitionError
from stf_places.partitions import block_cyclic, blocked, cyclic, mapper, partition, tiled, whole

NAMES = {
    name: getattr(p, name) for name in ("partition", "whole", "blocked", "cyclic", "block_cyclic", "tiled")
}


def brute_pages(owners, itemsize, page):
    """Return the owner of each page, byte by byte, and the bytes on pages of others."""
    by_byte = np.repeat(owners.reshape(-1), itemsize)
    pages = [np.bincount(by_byte[first : first + page]) for first in range(0, len(by_byte), page)]
    return [int(counts.argmax()) for counts in pages], sum(
        int(counts.sum() - counts.max()) for counts in pages
    )


def unrolled(runs):
    """Return the owner of each page; runs follow each other and are as long as can be."""
    owners = []
    for before, run in zip([None, *runs], runs, strict=False):
        assert run.first == len(owners)
        assert run.count > 0
        assert before is None or before.place != run.place
        owners += [run.place] * run.count
    return owners


@given(bindings())
def test_owners_are_those_of_the_rules_words(binding):
    spec, shape, grid = binding
    layout = spec.bind(shape, grid)
    assert np.array_equal(layout.owner(all_coords(shape)), brute_owners(*binding))
    assert (layout.spec, layout.shape, layout.grid) == binding
    assert layout.place_count == grid.size
    assert layout.exact


@given(bindings())
def test_boxes_of_the_places_with_one_copy_tile_the_array(binding):
    spec, shape, grid = binding
    layout = spec.bind(shape, grid)
    owners = brute_owners(*binding)
    copies = prod(grid.shape[grid.axes.index(axis)] for axis in spec.replicated)
    held = np.zeros(shape, int)
    for place in range(grid.size):
        mine = np.zeros(shape, int)
        for box in layout.boxes(place):
            mine[box] += 1
        coords = list(np.unravel_index(place, grid.shape))
        for axis in spec.replicated:
            coords[grid.axes.index(axis)] = 0
        original = int(np.ravel_multi_index(coords, grid.shape))
        assert np.array_equal(mine, owners == original)
        assert layout.size_of(place) == mine.sum()
        held += mine
    assert (held == copies).all()


@given(bindings(), st.integers(1, 20), st.integers(1, 64))
def test_pages_are_those_of_the_owner_of_most_bytes(binding, itemsize, page):
    spec, shape, grid = binding
    layout = spec.bind(shape, grid)
    pages, misplaced = brute_pages(brute_owners(*binding), itemsize, page)
    runs = layout.pages(itemsize, page)
    assert unrolled(runs) == pages
    stats = layout.stats(itemsize, page)
    copies = stats.copies
    assert copies == prod(grid.shape[grid.axes.index(axis)] for axis in spec.replicated)
    assert sum(run.count for run in runs) * copies == stats.page_count
    assert stats.page_count == -(-prod(shape) * itemsize // page) * copies
    assert stats.runs == len(runs) * copies
    assert stats.misplaced_bytes == misplaced * copies
    assert sum(stats.bytes_by_place) == prod(shape) * itemsize * copies
    assert sum(stats.mapped_by_place) == stats.page_count * page
    assert stats.bytes_by_place == tuple(layout.size_of(place) * itemsize for place in range(grid.size))
    assert stats.exact


@given(bindings())
def test_values_read_back_and_compare(binding):
    spec, shape, grid = binding
    again = eval(repr(spec), NAMES)
    assert again == spec
    assert hash(again) == hash(spec)
    assert repr(again) == repr(spec)
    assert again.bind(shape, grid) == spec.bind(shape, grid)
    assert hash(again.bind(shape, grid)) == hash(spec.bind(shape, grid))
    assert pickle.loads(pickle.dumps(again.bind(shape, grid))) == spec.bind(shape, grid)
    assert spec.bind((*shape[:-1], shape[-1] + 1), grid) != spec.bind(shape, grid)
    assert eval(repr(spec.bind(shape, grid)), {**NAMES, "Grid": Grid}) == spec.bind(shape, grid)


def test_rules_are_values():
    assert repr(partition(blocked("gpu", "sm"), whole)) == "partition(blocked('gpu', 'sm'), whole)"
    assert repr(partition(whole, replicated=["x"])) == "partition(whole, replicated=('x',))"
    assert block_cyclic("x", np.int64(64)) == block_cyclic("x", block=64)
    assert repr(block_cyclic("x", 64)) == "block_cyclic('x', block=64)"
    assert repr(tiled("x", "y", tile=8)) == "tiled('x', 'y', tile=8)"
    assert tiled("x", 8) != block_cyclic("x", 8)
    assert len({blocked("x"), blocked("x"), cyclic("x"), whole}) == 3
    with pytest.raises(FrozenInstanceError):
        whole.kind = "cyclic"
    with pytest.raises(FrozenInstanceError):
        partition(whole).rules = ()


def test_places_behind_the_last_block_are_empty():
    layout = partition(blocked("x")).bind(5, LINE)
    assert [layout.size_of(place) for place in range(4)] == [2, 2, 1, 0]
    assert layout.boxes(3) == ()
    assert layout.boxes(2) == ((slice(4, 5, 1),),)


def test_axes_on_one_array_axis_vary_in_the_given_order():
    layout = partition(blocked("sm", "gpu")).bind(6, GRID)
    assert layout.owner(np.arange(6)[:, None]).tolist() == [0, 3, 1, 4, 2, 5]


def test_boxes_are_made_when_asked_for():
    layout = partition(block_cyclic("x", 1000), block_cyclic("y", 2)).bind((10**6, 10**5), Grid((2, 2)))
    boxes = layout.boxes(3)
    assert len(boxes) == 500 * 25000
    assert boxes[0] == (slice(1000, 2000, 1), slice(2, 4, 1))
    assert boxes[-1] == (slice(999_000, 10**6, 1), slice(99_998, 10**5, 1))
    assert boxes[1:3] == (boxes[1], boxes[2])
    assert repr(boxes).startswith("<12500000 boxes: (slice(1000, 2000, 1), slice(2, 4, 1)), ")
    with pytest.raises(IndexError, match="counted from 0: got 12500000, and there are 12500000"):
        boxes[len(boxes)]
    assert boxes != layout.boxes(2)
    assert boxes != 3


def test_cyclic_boxes_have_a_step():
    assert partition(cyclic("x")).bind(10, LINE).boxes(1) == ((slice(1, 10, 4),),)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, ">i4"])
def test_owner_takes_ints_of_any_size_in_any_arrangement(dtype):
    layout = partition(blocked("gpu"), cyclic("sm")).bind((4, 6), GRID)
    coords = np.asfortranarray(all_coords((4, 6)).astype(dtype))
    assert np.array_equal(layout.owner(coords[::-1]), brute_owners(layout.spec, (4, 6), GRID)[::-1])
    one = layout.owner([3, 5])
    assert (one.shape, one.dtype, int(one)) == ((), np.int64, 5)
    assert layout.owner(np.empty((0, 7, 2), np.int64)).shape == (0, 7)


def test_owner_writes_where_it_is_told():
    layout = partition(cyclic("x")).bind(8, LINE)
    out = np.full((8,), -1)
    assert layout.owner(np.arange(8)[:, None], out) is out
    assert out.tolist() == [0, 1, 2, 3] * 2
    coords = np.arange(8)
    assert layout.owner(coords[:, None], out=coords).tolist() == [0, 1, 2, 3] * 2


def test_grids_without_names_have_those_of_the_axes_in_space():
    layout = partition(cyclic("y"), whole, blocked("x")).bind((2, 1, 4), Grid((2, 3)))
    assert layout.owner([1, 0, 3]) == 4


def test_stats_read_well():
    grid = Grid((2, 2), ("gpu", "copy"))
    stats = partition(blocked("gpu"), whole, replicated=["copy"]).bind((1024, 1536), grid).stats(4)
    assert str(stats).splitlines() == [
        "place       owned      mapped",
        "0           3 MiB       4 MiB",
        "1           3 MiB       4 MiB",
        "2           3 MiB       2 MiB",
        "3           3 MiB       2 MiB",
        "6 pages of 2 MiB in 4 runs of 2 copies, 2 MiB misplaced (exact)",
    ]
    fields = json.loads(stats.to_json())
    assert fields["bytes_by_place"] == [3 << 20] * 4
    assert fields["copies"] == 2
    assert hash(stats) == hash(
        type(stats)(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    )
    small = partition(blocked("x")).bind(10, LINE).stats(150)
    assert str(small).splitlines()[1:] == [
        "0           450 B       2 MiB",
        "1           450 B         0 B",
        "2           450 B         0 B",
        "3           150 B         0 B",
        "1 page of 2 MiB in 1 run, 1.03 KiB misplaced (exact)",
    ]
    assert "1.5 TiB" in str(partition(whole, replicated=["x"]).bind(3 << 39, Grid((1,))).stats(1))


def by_rows(coords, dims, grid):
    return (coords[0] * grid[0] // dims[0],)


@dataclass
class Shapeless:
    size: int = 1


BAD = {
    "rank": (lambda: partition(blocked("x")).bind((4, 4), LINE), PartitionError,
        "1 rules for a rank-2 array: got partition(blocked('x')), shape=(4, 4); give one rule for each"),
    "axis twice": (lambda: partition(blocked("x"), cyclic("x")), PartitionError,
        "a grid axis is used once: got partition(blocked('x'), cyclic('x'))"),
    "axis twice in a rule": (lambda: blocked("x", "x"), PartitionError, "used once: got blocked('x', 'x')"),
    "axis replicated too": (lambda: partition(blocked("x"), replicated=["x"]), PartitionError, "used once: got part"),
    "unknown axis": (lambda: partition(blocked("gpu")).bind(4, LINE), PartitionError,
        "got partition(blocked('gpu')) with ('gpu',), which the grid with axes=('x',), shape=(4,) lacks"),
    "unused axis": (lambda: partition(blocked("gpu")).bind(4, GRID), PartitionError,
        "without ('sm',) of the grid with axes=('gpu', 'sm'), shape=(2, 3); use it in a rule, or give replicated="
        "('sm',)"),
    "grid of other rank": (lambda: partition(whole).bind(4, Grid((4,), ("gpu", "sm"))), PartitionError,
        "2 axes for a rank-1 grid: got axes=('gpu', 'sm'), shape=(4,)"),
    "equal names": (lambda: partition(whole).bind(4, Grid((2, 2), ("x", "x"))), PartitionError,
        "different names: got axes=('x', 'x')"),
    "empty grid": (lambda: partition(whole).bind(4, Grid((0,))), PartitionError, "1 place or more: got shape=(0,)"),
    "no grid": (lambda: partition(whole).bind(4, Shapeless()), TypeError,
        "a grid has shape, axes and size, as exec_place_grid.from_devices([0, 1]) has: got Shapeless(size=1)"),
    "names of a grid": (lambda: partition(whole).bind(4, Grid((2,), (0,))), TypeError, "of strings: got axes=(0,)"),
    "no shape": (lambda: partition(whole).bind((), LINE), PartitionError, "length 1 or more: got shape=()"),
    "length 0": (lambda: partition(whole).bind((4, 0), LINE), PartitionError, "length 1 or more: got shape=(4, 0)"),
    "float length": (lambda: partition(whole).bind((4.0,), LINE), TypeError, "a sequence of ints: got (4.0,)"),
    "shape of letters": (lambda: partition(whole).bind("44", LINE), TypeError, "a sequence of ints: got '44'"),
    "too large": (lambda: partition(whole).bind(1 << 62, LINE), PartitionError, "fewer than 2**62 elements: got shape"),
    "block 0": (lambda: block_cyclic("x", 0), PartitionError, "block is 1 or more: got block=0"),
    "tile 0": (lambda: tiled("x", tile=-1), PartitionError, "tile is 1 or more: got tile=-1"),
    "no block": (lambda: block_cyclic("x"), TypeError, "as in block_cyclic('x', block=64): got None (NoneType)"),
    "float tile": (lambda: tiled("x", tile=1.5), TypeError, "as in tiled('x', tile=64): got 1.5 (float)"),
    "bool block": (lambda: block_cyclic("x", block=True), TypeError, "got True (bool)"),
    "block twice": (lambda: block_cyclic("x", 4, block=4), TypeError, "takes block once: got 4 behind the axes and"),
    "number as name": (lambda: blocked("x", 2), TypeError, "names of grid axes, as in blocked('x', ...): got ('x', 2)"),
    "no name": (lambda: cyclic(), PartitionError, "one grid axis or more: got none; the rule of an axis that is not"),
    "rule uncalled": (lambda: partition(blocked), TypeError, "as in partition(blocked('x'), whole): got <function"),
    "no rule": (lambda: partition(), PartitionError, "one rule for each axis of the array: got none"),
    "replicated text": (lambda: partition(whole, replicated="x"), TypeError, "replicated=('x',): got replicated='x'"),
    "replicated number": (lambda: partition(whole, replicated=[1]), TypeError, "got replicated=(1,)"),
    "kind": (lambda: p.AxisRule("spiral", ("x",)), PartitionError, "blocked, cyclic, block_cyclic, tiled: got '"),
    "whole with axes": (lambda: p.AxisRule("whole", ("x",)), PartitionError, "whole takes no grid axis: got ('x',)"),
    "blocked with block": (lambda: p.AxisRule("blocked", ("x",), 3), PartitionError, "has no block length: got 3"),
    "mapper of nothing": (lambda: mapper(3), TypeError, "of data_coords, data_dims and grid_dims: got 3 (int)"),
    "vectorized": (lambda: mapper(by_rows, 1), TypeError, "vectorized is True or False: got 1"),
    "mapper, rank 5": (lambda: mapper(by_rows).bind((1,) * 5, LINE), PartitionError, "arrays of 1 to 4 axes: got"),
    "mapper, grid of 5": (lambda: mapper(by_rows).bind(4, Grid((1,) * 5, tuple("abcde"))), PartitionError,
        "grids of 1 to 4 axes: got shape=(1, 1, 1, 1, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_with_rule_gift_and_remedy(name):
    function, kind, text = BAD[name]
    with pytest.raises(kind) as raised:
        function()
    assert text in str(raised.value)


def test_a_grid_whose_size_contradicts_its_shape_is_refused():
    class Wrong:
        shape, size = (2, 2), 5

    with pytest.raises(
        PartitionError, match=r"product of its shape: got size=5, shape=\(2, 2\), which makes 4"
    ):
        partition(whole).bind(4, Wrong())


BAD_QUERIES = {
    "coords of floats": (lambda at: at.owner([[0.5, 1.0]]), TypeError, "ints: got an array of float64, shape=(1, 2)"),
    "coords of bools": (lambda at: at.owner([[True, False]]), TypeError, "ints: got an array of bool"),
    "coords of one axis": (lambda at: at.owner([[1]]), ValueError, "shape (1, 1); give (..., 2)"),
    "coords without axis": (lambda at: at.owner(1), ValueError, "got coordinates of shape (); give (..., 2)"),
    "coords outside": (lambda at: at.owner([[0, 0], [4, 0]]), IndexError, "(4, 0)"),
    "coords below": (lambda at: at.owner([[0, -1]]), IndexError, "(0, -1)"),
    "coords huge": (lambda at: at.owner(np.array([[0, 2**63]], np.uint64)), IndexError, "got 9223372036854775808"),
    "out of floats": (lambda at: at.owner([0, 0], np.empty(())), TypeError, "an array of int64: got float64; give"),
    "out a list": (lambda at: at.owner([[0, 0]], [0]), TypeError, "an array of int64: got list; give np.empty((1,)"),
    "out of other shape": (lambda at: at.owner([[0, 0]], np.empty(2, np.int64)), ValueError, "got shape (2,) for (1,)"),
    "out with gaps": (lambda at: at.owner([[0, 0]] * 2, np.empty(4, np.int64)[::2]), ValueError, "C-contiguous=False"),
    "out read-only": (lambda at: at.owner([[0, 0]], np.broadcast_to(np.int64(0), (1,))), ValueError, "writeable=False"),
    "place above": (lambda at: at.boxes(6), IndexError, "places are counted from 0 to 5: got 6"),
    "place below": (lambda at: at.size_of(-1), IndexError, "places are counted from 0 to 5: got -1"),
    "place of text": (lambda at: at.boxes("0"), TypeError, "a place's index is an int: got '0' (str)"),
    "itemsize 0": (lambda at: at.pages(0), PartitionError, "itemsize is 1 or more: got itemsize=0"),
    "page 0": (lambda at: at.stats(8, 0), PartitionError, "page is 1 or more: got page=0"),
    "itemsize of text": (lambda at: at.stats("f8"), TypeError, "itemsize is an int: got 'f8' (str)"),
    "bytes": (lambda at: at.pages(1 << 60), PartitionError, "fewer than 2**62 bytes each: got shape=(4, 6), itemsize="),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_wrong_questions_to_a_layout_are_refused(name):
    function, kind, text = BAD_QUERIES[name]
    with pytest.raises(kind) as raised:
        function(partition(blocked("gpu"), cyclic("sm")).bind((4, 6), GRID))
    assert text in str(raised.value)


@pytest.mark.parametrize(
    "module",
    [
        f"stf_places.{name}"
        for name in (
            "partitions.boxes", "partitions.grids", "partitions.layout_stats", "partitions.layouts",
            "partitions.mappers", "partitions.rules", "partitions.specs", "viz.layouts",
        )
    ],
)  # fmt: skip
def test_examples_run(module):
    failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted > 0
    assert failed == 0


def test_the_guides_examples_print_what_it_says(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "data_partitions.md").read_text()
    names = {}
    said = []
    for kind, block in re.findall(r"```(python|text)\n(.*?)```", guide, re.DOTALL):
        if kind == "python":
            exec(block, names)
        else:
            said.append((block, capsys.readouterr().out))
    assert len(said) == 6
    for expected, printed in said:
        assert printed == expected


def test_boxes_do_not_grow_with_the_array():
    layout = partition(block_cyclic("x", 2)).bind(1 << 61, stf.exec_place_grid.from_devices(range(8)))
    boxes = layout.boxes(1)
    assert len(boxes) == 1 << 57
    assert boxes[0] == (slice(2, 4, 1),) and boxes[-1] == ((slice((1 << 61) - 14, (1 << 61) - 12, 1)),)


def test_a_layout_of_a_simulated_machine_reads_back():
    with stf.use_machine("sim:h200x2"):
        layout = partition(blocked("x")).bind(10, stf.exec_place_grid.from_devices([0, 1]))
        names = {"partition": partition, "blocked": blocked, "exec_place_grid": stf.exec_place_grid}
        assert "# simulated" in repr(layout) and eval(repr(layout), names) == layout


def test_shapes_may_be_arrays():
    grid = stf.exec_place_grid.create(map(stf.exec_place.device, range(6)), np.array([2, 3]))
    assert grid.shape == (2, 3) and grid.reshape(np.array([3, 2])).shape == (3, 2)
    assert partition(blocked("x"), blocked("y")).bind(np.array([4, 6]), grid).shape == (4, 6)
