"""The rules of the service, without any I/O."""
