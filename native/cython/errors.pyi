"""The one translation of C++ exceptions into Python exceptions.

Other compiled modules ``cimport raise_stf_error`` and declare what can throw with
``except +raise_stf_error``.

====================  ===========================================
kind of a C++ Error   Python exception
====================  ===========================================
driver                `stf_places.errors.DriverError`
device_lost           `stf_places.errors.DeviceLost`
not_supported         `stf_places.errors.NotSupported`
out_of_memory         `stf_places.errors.OutOfMemory`
invalid_device        `stf_places.errors.InvalidDevice`
context_closed        `stf_places.errors.ContextClosed`
wrong_context         `stf_places.errors.WrongContext`
task_state            `stf_places.errors.TaskStateError`
poisoned              `stf_places.errors.PoisonedData`
read_only             `stf_places.errors.ReadOnlyError`
conflict              `stf_places.errors.DataRace`
value                 `ValueError`
index                 `IndexError`
interrupted           the exception that a signal handler set, else `KeyboardInterrupt`
(std::bad_alloc)      `MemoryError`
(std::exception)      `RuntimeError`
====================  ===========================================
"""

from typing import NoReturn

def throw(kind: str, text: str, *, call: str = "", code: int = 0, name: str = "") -> NoReturn:
    """Throw a C++ exception and let it be translated, so that a test can see every row of the table.

    Parameters
    ----------
    kind : str
        A kind of the table above, ``"bad_alloc"`` or ``"std_exception"``.
    text : str
        The exception's text.
    call, code, name
        What the exceptions of failed driver calls carry.

    Raises
    ------
    ValueError
        If there is no such kind.
    """
