"""SQL, each statement beside its one typed function."""
