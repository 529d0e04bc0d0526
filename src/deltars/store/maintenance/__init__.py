"""What maintenance reads and keeps in the catalog: statistics of every table, and who works on which table."""
