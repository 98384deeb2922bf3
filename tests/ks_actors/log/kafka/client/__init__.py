"""Tests of connections, addresses and metadata."""
