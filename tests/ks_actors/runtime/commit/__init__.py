"""Tests of commits."""
