"""The delegation service as a process: `python -m pamspec_delegation`."""

import sys

from pamspec_common.server import run
from pamspec_delegation.app import build_remote
from pamspec_delegation.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
