"""`pamspec provision`: the secrets of a deployment of containers, and what its servers are started with."""

import argparse
from pathlib import Path

from pamspec_cli.provisioning import Places, provision

SUMMARY = "make the secrets and the server configuration of a deployment of containers"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    places = Places()
    parser.add_argument("directory", type=Path, help="where to keep them; secrets that are there stay")
    parser.add_argument("--postgres", default=places.postgres, metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--nats", default=places.nats, metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--valkey", default=places.valkey, metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument(
        "--checkpoints",
        default=places.checkpoints,
        metavar="DIR",
        help="where the relay appends checkpoints to files; '' for none beside the bucket; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    """Makes what is missing, and writes anew what follows from it."""
    places = Places(arguments.postgres, arguments.nats, arguments.valkey, checkpoints=arguments.checkpoints)
    provision(arguments.directory, places)
    print(f"secrets are in {arguments.directory}: one directory for each service")
    return 0
