"""Environment variables are parsed strictly, and a wrong value names the right ones."""

import pytest

from stf_places.machines import environment

READERS = {
    "STF_PLACES_DRIVER": environment.driver,
    "STF_PLACES_MACHINE": environment.machine,
    "STF_PLACES_SYNC": environment.sync_each_task,
    "STF_PLACES_CHECK": environment.check_streams,
}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("STF_PLACES_DRIVER", None, "auto"),
        ("STF_PLACES_DRIVER", "", "auto"),
        ("STF_PLACES_DRIVER", "auto", "auto"),
        ("STF_PLACES_DRIVER", "cuda", "cuda"),
        ("STF_PLACES_DRIVER", "sim", "sim"),
        ("STF_PLACES_MACHINE", None, "h200x2"),
        ("STF_PLACES_MACHINE", "", "h200x2"),
        ("STF_PLACES_MACHINE", "tiny", "tiny"),
        ("STF_PLACES_MACHINE", "some/path.json", "some/path.json"),
        ("STF_PLACES_SYNC", None, False),
        ("STF_PLACES_SYNC", "0", False),
        ("STF_PLACES_SYNC", "1", True),
        ("STF_PLACES_CHECK", None, False),
        ("STF_PLACES_CHECK", "0", False),
        ("STF_PLACES_CHECK", "1", True),
    ],
)
def test_values(monkeypatch, name, given, expected):
    if given is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, given)
    assert READERS[name]() == expected


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("STF_PLACES_DRIVER", "gpu", "STF_PLACES_DRIVER is one of auto, cuda, sim: got 'gpu'"),
        ("STF_PLACES_DRIVER", "CUDA", "got 'CUDA'"),
        ("STF_PLACES_DRIVER", " sim", "got ' sim'"),
        ("STF_PLACES_SYNC", "yes", "STF_PLACES_SYNC is 0 or 1: got 'yes'"),
        ("STF_PLACES_CHECK", "true", "STF_PLACES_CHECK is 0 or 1: got 'true'"),
    ],
)
def test_wrong_values_name_the_right_ones(monkeypatch, name, given, text):
    monkeypatch.setenv(name, given)
    with pytest.raises(ValueError, match=text):
        READERS[name]()


def test_nothing_is_remembered(monkeypatch):
    monkeypatch.setenv("STF_PLACES_DRIVER", "sim")
    assert environment.driver() == "sim"
    monkeypatch.setenv("STF_PLACES_DRIVER", "cuda")
    assert environment.driver() == "cuda"
