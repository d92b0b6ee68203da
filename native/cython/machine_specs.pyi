"""The layout of the dictionary that describes a simulated machine (machine_spec.hpp).

A machine is a dictionary of ``name``, ``driver_version``, ``devices`` (a list of dictionaries), ``links``
(also a list) and ``costs``. What is left out has the value 0 or the default of the header; ``name`` and
``devices`` of a machine, ``sm_count``, ``memory`` and ``bandwidth`` of a device, and ``from``, ``to`` and
``bandwidth`` of a link cannot be left out. Files are read and checked in `stf_places.machines`.
"""

from collections.abc import Iterable

DEVICE_FIELDS: tuple[str, ...]
LINK_FIELDS: tuple[str, ...]
COST_FIELDS: tuple[str, ...]
MACHINE_FIELDS: tuple[str, ...]

def check_fields(what: str, given: Iterable[str], fields: tuple[str, ...]) -> None:
    """Refuse fields that do not exist, so that a misspelt one is not silently without effect.

    Raises
    ------
    ValueError
        If ``given`` has a field that is not one of ``fields``.
    """
