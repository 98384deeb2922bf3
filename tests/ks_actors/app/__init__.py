"""Tests of apps: their start, their calls and their close."""
