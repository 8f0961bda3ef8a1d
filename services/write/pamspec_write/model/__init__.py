"""Pure rules of the write service: no I/O, no clock, no randomness but what is handed in."""
