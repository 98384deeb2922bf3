"""Delays of the 336,776 flights that left New York in 2013.

A job on real data, from raw CSV rows to result tables.

Run: python -m examples.flights --help
"""
