"""Everything that reads the log: versions, live files, cuts."""
