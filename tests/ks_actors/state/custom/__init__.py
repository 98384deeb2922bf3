"""Tests of custom stores and supplied engines."""
