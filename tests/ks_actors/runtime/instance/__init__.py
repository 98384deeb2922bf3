"""Tests of instances and of their workers."""
