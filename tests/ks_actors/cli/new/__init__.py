"""Tests of `ks-actors new`."""
