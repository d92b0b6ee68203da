"""What the tests of scopes share."""

import pytest

import stf_places as stf


@pytest.fixture
def work(machine):
    """Give what submits work to a machine, and see at the end that nothing unordered was found."""
    from scope_work import prepared

    with prepared(machine) as made:
        yield made


@pytest.fixture
def ctx(work):
    """Give a context with scopes."""
    with stf.stackable_context() as made:
        yield made
