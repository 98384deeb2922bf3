"""Stores of stream-stream joins."""
