"""Files that are derived from `contracts/`: generate them, or verify that the committed ones are up to date."""
