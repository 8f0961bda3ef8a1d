"""What the sweeper does in a round, and what it answers."""
