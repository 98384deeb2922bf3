"""Tests of `ks-actors dev`."""
