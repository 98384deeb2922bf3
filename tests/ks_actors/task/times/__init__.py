"""Tests of times: idle nodes, committed times, run lengths."""
