"""Tests of the rows of join windows."""
