"""Compiled modules: they convert arguments and call the C++ core."""
