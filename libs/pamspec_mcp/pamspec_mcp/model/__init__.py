"""The pure rules of the door: names, schemas, addresses and bounds."""
