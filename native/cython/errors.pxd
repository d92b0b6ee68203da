# The one translation of C++ exceptions: write `except +raise_stf_error` behind every C++ function that can throw.

# Raises the Python exception that stands for the C++ exception being handled.
cdef extern from "cython/raise_error.hpp" namespace "stf_places":
    int raise_stf_error() except -1
