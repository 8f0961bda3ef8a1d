"""Admission, one module per noun: commands (the entry), parts, objects, states, entries, batches."""
