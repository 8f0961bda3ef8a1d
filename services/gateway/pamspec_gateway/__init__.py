"""The only public door: authentication, limits, the operation door and its conveniences."""
