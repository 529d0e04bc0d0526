"""Writing a DataFrame as data files."""
