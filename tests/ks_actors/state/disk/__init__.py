"""Tests of stores on disk."""
