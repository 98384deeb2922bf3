"""Tests of group membership."""
