"""Parts of every kind of store."""
