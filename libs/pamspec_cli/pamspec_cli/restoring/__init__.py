"""After a restore of the store: new epochs, signed against what was signed before, and erasures that are done again."""
