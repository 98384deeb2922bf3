"""Tests of the order of processing."""
