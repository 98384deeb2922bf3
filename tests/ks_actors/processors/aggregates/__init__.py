"""Tests of aggregations."""
