"""Everything that speaks SQL: the schema and its migrations, the three backends, the log's reader and writer."""
