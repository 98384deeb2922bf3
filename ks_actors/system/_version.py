"""The version, as pyproject.toml has it: a lookup of the installed one takes 10 ms."""

VERSION = "0.1.0"
