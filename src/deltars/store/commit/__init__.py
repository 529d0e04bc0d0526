"""One commit: the plan, the statements, the checks under the lock."""
