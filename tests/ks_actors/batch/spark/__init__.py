"""Tests of the bridge to Spark."""
