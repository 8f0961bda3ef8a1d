"""The demonstration: conversations become memory while followers on three channels watch."""
