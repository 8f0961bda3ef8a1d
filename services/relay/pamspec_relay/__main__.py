"""The relay as a process: `python -m pamspec_relay`."""

import sys

from pamspec_common.server import run
from pamspec_relay.app import build
from pamspec_relay.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(build(settings), settings))
