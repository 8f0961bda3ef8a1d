"""One handler per operation: it takes a decoded request, reads one moment of one scope, and answers."""
