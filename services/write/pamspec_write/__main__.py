"""Run the write service as a process of its own."""

import sys

from pamspec_common.server import run
from pamspec_write.app import build
from pamspec_write.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(build(settings), settings))
