"""A table's files as a DataFrame."""
