"""Readers of the log: versions, live files, cuts."""
