"""The delegation service: what a grant allows now, why, whose it is, and what was done under it."""
