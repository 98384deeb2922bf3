"""Values that travel between all parts: batches, task ids, windows."""
