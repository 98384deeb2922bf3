"""Tests of fetched topics and of the group."""
