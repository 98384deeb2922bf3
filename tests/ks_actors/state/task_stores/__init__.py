"""Tests of the stores of a task: opening, commits, positions and restores."""
