"""Commits: the writer, its plan and statements, and the conflict checks under the lock."""
