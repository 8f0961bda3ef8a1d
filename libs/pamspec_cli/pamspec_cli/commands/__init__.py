"""The subcommands, one module each: SUMMARY, `add(parser)` and `run(arguments) -> exit code`.

Exit codes: 0 done, 1 failed, 2 the command line or its circumstances are wrong.
"""
