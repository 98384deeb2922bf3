"""Tests of tasks: one partition of each topic of a subtopology."""
