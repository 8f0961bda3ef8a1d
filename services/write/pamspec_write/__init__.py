"""The only writer of versions and ledger: commands, group commit, operation records."""
