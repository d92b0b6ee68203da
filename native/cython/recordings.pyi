"""Recordings of scopes; for `stf_places._native.scopes` alone."""

from typing import final

@final
class Recorded:
    """Hold a scope of the core with the Python objects that it needs."""
