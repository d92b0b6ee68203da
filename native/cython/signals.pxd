# Signals during long waits (signals.hpp): hand `stf_python_interrupt()` to every wait that Python code started.
from libcpp cimport bool as cbool

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    cdef cppclass Interrupt:
        cbool (*check)(void*) noexcept
        void* argument

cdef extern from "cython/signals.hpp" nogil:
    cbool stf_check_signals(void*) noexcept
    Interrupt stf_python_interrupt() noexcept
