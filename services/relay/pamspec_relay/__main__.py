"""The relay as a process of its own."""

import sys

from pamspec_common import server
from pamspec_relay.app import build
from pamspec_relay.settings import RelaySettings


def main() -> int:
    """Run until SIGTERM or SIGINT; the process's exit code."""
    settings = RelaySettings()
    return server.run(build(settings), settings)


if __name__ == "__main__":
    sys.exit(main())
