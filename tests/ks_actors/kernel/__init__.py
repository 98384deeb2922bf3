"""Tests of the kernel in C."""
