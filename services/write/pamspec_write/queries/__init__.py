"""The SQL of the write service, one module per noun, each statement beside its one typed function."""
