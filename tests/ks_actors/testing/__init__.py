"""Tests of the test drivers and of the harness."""
