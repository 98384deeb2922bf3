"""Requests about topics, offsets and groups."""
