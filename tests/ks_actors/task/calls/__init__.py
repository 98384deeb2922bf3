"""Tests of asynchronous and blocking user code."""
