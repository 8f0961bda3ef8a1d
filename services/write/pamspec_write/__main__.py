"""The write service as a process: `python -m pamspec_write`."""

import sys

from pamspec_common.server import run
from pamspec_write.app import build
from pamspec_write.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(build(settings), settings))
