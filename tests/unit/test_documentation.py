"""What ``help()`` shows of the public names."""

import inspect

import pytest

import stf_places as stf


def documented_parts(name):
    """Return a public name and what it defines for its users, by dotted name."""
    found = getattr(stf, name)
    parts = {name: found}
    if inspect.isclass(found) and found.__module__.startswith("stf_places"):
        for each, value in vars(found).items():
            if not each.startswith("_") and (callable(value) or isinstance(value, (property, staticmethod))):
                parts[f"{name}.{each}"] = getattr(found, each)
    return parts


@pytest.mark.parametrize("name", [name for name in stf.__all__ if not name.startswith("__")])
def test_public_names_have_docstrings(name):
    missing = [each for each, value in documented_parts(name).items() if not (value.__doc__ or "").strip()]
    assert missing == []


def test_docstrings_of_compiled_classes_are_those_of_their_stubs():
    assert "immutable value" in stf.exec_place.__doc__
    assert "Raises" in stf.exec_place.from_context.__doc__
    assert stf.exec_place.sm_count.__doc__.startswith("SMs that work on the place can use")
