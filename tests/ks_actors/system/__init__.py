"""Tests of file locks, open files and supported systems."""
