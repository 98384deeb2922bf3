"""Where records that are held back came from."""
