"""Tests of the history of an instance."""
