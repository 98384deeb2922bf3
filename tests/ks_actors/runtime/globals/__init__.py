"""Tests of global tables and global stores."""
