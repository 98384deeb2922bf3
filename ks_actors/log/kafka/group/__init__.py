"""Group membership."""
