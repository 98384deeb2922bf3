"""Tests of key-value stores."""
