"""The SQL of the query service: constants and composed statements, each beside its one typed function."""
