"""The committer."""
