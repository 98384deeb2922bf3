"""Tests of tables as operators."""
