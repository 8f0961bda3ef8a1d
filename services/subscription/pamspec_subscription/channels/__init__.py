"""Channels: the ways in which frames reach a client, and the one loop that feeds them."""
