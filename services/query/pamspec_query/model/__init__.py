"""Pure rules of the query service: no I/O, no clock, no randomness."""
