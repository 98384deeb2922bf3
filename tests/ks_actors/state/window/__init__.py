"""Tests of window stores."""
