"""Pictures of layouts: the file, its colours, and what cannot be drawn."""

import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest
from drawn_partitions import Grid

from stf_places.partitions import block_cyclic, blocked, cyclic, mapper, partition, whole
from stf_places.viz import save_layout


def colors(path):
    """Return how many colours cover an area, without greys and the blends at edges."""
    pixels = (matplotlib.image.imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3)
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    return int(((np.ptp(found, axis=1) > 20) & (counts > 2000)).sum())


def diagonal(coords, dims, grid):
    return ((coords[0] + coords[1]) % grid[0],)


@pytest.mark.parametrize(
    ("layout", "at", "owners"),
    [
        (partition(blocked("x")).bind(10, Grid((4,))), None, 4),
        (partition(blocked("x")).bind(3, Grid((4,))), None, 3),
        (partition(cyclic("x"), blocked("y")).bind((20, 10), Grid((2, 3))), None, 6),
        (partition(block_cyclic("x", 300), whole).bind((3000, 5), Grid((8,))), None, 8),
        (partition(blocked("x"), blocked("y"), whole).bind((4, 6, 8), Grid((2, 3))), None, 3),
        (partition(blocked("x"), blocked("y"), whole).bind((4, 6, 8), Grid((2, 3))), (None, None, 7), 6),
        (partition(blocked("x"), blocked("y"), whole).bind((4, 6, 8), Grid((2, 3))), (None, 5, 7), 2),
        (mapper(diagonal, vectorized=True).bind((12, 12), Grid((5,))), None, 5),
        (partition(blocked("x"), whole).bind((40, 6), Grid((40,))), None, 40),
    ],
)
def test_a_picture_has_a_colour_for_each_owner(layout, at, owners, tmp_path):
    save_layout(layout, tmp_path / "layout.png", at=at)
    assert colors(tmp_path / "layout.png") == owners


def test_the_suffix_is_the_format_and_the_title_can_be_given(tmp_path):
    layout = partition(blocked("x"), whole).bind((4, 4), Grid((2,)))
    save_layout(layout, str(tmp_path / "layout.svg"), title="rows")
    assert "<!-- rows -->" in (tmp_path / "layout.svg").read_text()


@pytest.mark.parametrize(
    ("at", "kind", "text"),
    [
        (
            (None, 0),
            ValueError,
            r"each of the 3 axes of shape \(4, 6, 8\), one or two of them None: got at=\(None, 0\)",
        ),
        ((0, 0, 0), ValueError, r"got at=\(0, 0, 0\)"),
        ((None,) * 3, ValueError, r"got at=\(None, None, None\)"),
        ((None, 6, None), IndexError, r"within the shape \(4, 6, 8\): got 6 for axis 1"),
        ((None, "0", None), TypeError, r"an int or None for each axis of the array: got at="),
    ],
)
def test_what_cannot_be_drawn_is_refused(at, kind, text, tmp_path):
    layout = partition(blocked("x"), whole, whole).bind((4, 6, 8), Grid((2,)))
    with pytest.raises(kind, match=text):
        save_layout(layout, tmp_path / "layout.png", at=at)
    assert not (tmp_path / "layout.png").exists()


def test_without_matplotlib_the_extra_is_named(tmp_path):
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import stf_places as stf\n"
        "from stf_places.partitions import partition, whole\n"
        "from stf_places.viz import save_layout\n"
        "layout = partition(whole, replicated=('x',)).bind(4, stf.exec_place_grid.from_devices([0]))\n"
        "try:\n    save_layout(layout, 'layout.png')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "matplotlib is not installed: pip install 'stf-places[demo]'\n"
