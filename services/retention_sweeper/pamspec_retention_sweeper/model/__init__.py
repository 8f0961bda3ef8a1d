"""Rules without I/O: what a policy does to an object, and when."""
