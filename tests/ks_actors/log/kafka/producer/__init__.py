"""Tests of producing."""
