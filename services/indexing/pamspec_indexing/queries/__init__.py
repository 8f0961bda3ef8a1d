"""Every statement of the service, each beside its one typed function."""
