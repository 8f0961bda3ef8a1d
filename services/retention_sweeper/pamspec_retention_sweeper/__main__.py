"""The retention sweeper as a process: `python -m pamspec_retention_sweeper`."""

import sys

from pamspec_common.server import run
from pamspec_retention_sweeper.app import build_remote
from pamspec_retention_sweeper.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
