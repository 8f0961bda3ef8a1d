"""Every statement of the subscription service, each beside its one typed function."""
