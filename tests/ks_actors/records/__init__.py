"""Tests of partitioners and task ids."""
