"""Tests of what all stores share: codecs, rows, memory."""
