"""Tests of requests and record batches as bytes."""
