"""Bridges to other libraries, one module each, none of them imported before it is asked for.

A bridge module imports its library at the first call of one of its functions, so that importing the bridge works
without the library and costs nothing.
"""
