"""The subscription service as a process: `python -m pamspec_subscription`."""

import sys

from pamspec_common.server import run
from pamspec_subscription.app import build_remote
from pamspec_subscription.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    sys.exit(run(lambda: build_remote(settings), settings))
