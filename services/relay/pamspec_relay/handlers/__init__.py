"""What an owner of a partition does: keep the lease, read back, repair, drain."""
