"""Results depend neither on the places of commits, nor on changes to objects that were put or read."""
