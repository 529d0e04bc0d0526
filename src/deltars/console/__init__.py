"""Pages about a catalog, in a browser: read-only, served on this machine (extra `console`)."""
