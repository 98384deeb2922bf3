"""Tests of session stores."""
