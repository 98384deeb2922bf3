"""Tests of the metrics that a running app samples."""
