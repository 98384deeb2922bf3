"""Aggregations."""
