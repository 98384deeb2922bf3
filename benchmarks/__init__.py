"""Benchmarks: run them as scripts from the project's root, e.g. `python benchmarks/actors.py`."""
