"""Hash chain of a table: finds rows of its history that were changed in the database, past deltars."""
