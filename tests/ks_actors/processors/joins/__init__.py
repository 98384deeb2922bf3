"""Tests of joins of streams and tables."""
