"""Settings: their names, sources, values and checks."""
