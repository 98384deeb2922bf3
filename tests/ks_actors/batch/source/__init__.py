"""Tests of topics and stores as DataFrames."""
