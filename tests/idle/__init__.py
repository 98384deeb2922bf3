"""Windows that close by the wall clock, while no record comes."""
