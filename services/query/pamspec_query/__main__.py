"""The query service as a process: `python -m pamspec_query`."""

import sys

from pamspec_common.server import run
from pamspec_query.app import build_remote
from pamspec_query.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
