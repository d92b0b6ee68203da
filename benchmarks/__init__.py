"""Benchmarks of stf_places: one folder a workload, one file a system in it.

``python -m benchmarks NAME [options] --json FILE`` runs one workload; README.md says what the records mean.
"""
