"""The operations of the service as methods, one module per noun."""
