"""What the door does with a request of a host."""
