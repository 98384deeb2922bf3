"""Tests of stores in apps: restores, standbys, directories."""
