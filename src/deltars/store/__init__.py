"""SQL side of the catalog: the schema and its migrations, the three backends, the log's reader and writer."""
