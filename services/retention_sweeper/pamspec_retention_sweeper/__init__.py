"""The retention sweeper: what the policies of scopes let go of, when and why; it acts through commands of write."""
