"""Tests of runs over several partitions."""
