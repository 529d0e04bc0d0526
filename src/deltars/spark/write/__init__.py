"""A DataFrame as data files."""
