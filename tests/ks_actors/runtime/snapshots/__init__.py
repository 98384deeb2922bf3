"""Tests of snapshots and bootstraps of apps."""
