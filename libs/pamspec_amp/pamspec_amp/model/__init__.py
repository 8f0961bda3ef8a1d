"""Rules without I/O: what a cell is, who may use it, and what its state means."""
