"""Tests of joins by a foreign key."""
