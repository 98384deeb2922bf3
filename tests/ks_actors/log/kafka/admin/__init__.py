"""Tests of requests of operators."""
