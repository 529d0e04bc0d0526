"""What the mirror keeps in the catalog, and what it reads there."""
