"""The end of history: which versions of a table can go, and how their rows are deleted."""
