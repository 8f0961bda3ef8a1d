"""The cases, a module or two for each profile."""
