"""Tests of supervision: starts, ends, failures and watches."""
