"""The command pamspec: embedded servers, the whole service as one command, demo and bench."""
