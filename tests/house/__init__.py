"""Tests of the house: its rules, its public names, and the choice of tests."""
