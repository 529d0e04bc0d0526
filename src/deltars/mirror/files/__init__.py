"""The files of a `_delta_log`: what is in them, and how they are written."""
