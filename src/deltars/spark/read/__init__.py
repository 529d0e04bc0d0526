"""Reading a table's files as a DataFrame."""
