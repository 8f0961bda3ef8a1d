"""The indexing service as a process: `python -m pamspec_indexing`."""

import sys

from pamspec_common.server import run
from pamspec_indexing.app import build_remote
from pamspec_indexing.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
