"""Pure: what a commit is, which commits are valid, and what a table looks like after them. No I/O."""
