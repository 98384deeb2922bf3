"""Calls that take long: async, blocking and batch functions."""
