"""The gateway as a process: `python -m pamspec_gateway`."""

import sys

from pamspec_common.server import run
from pamspec_gateway.app import build_remote
from pamspec_gateway.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
