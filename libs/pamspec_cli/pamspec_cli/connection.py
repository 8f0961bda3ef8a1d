"""Where a command finds the service: its arguments, the environment, or the note of a `pamspec up` on this machine."""

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from pamspec_cli.data import DataDirectory, chosen
from pamspec_client import AsyncClient, Client, ClientError, NatsLogin, NoAnswer, PamspecError

OK, FAILED, USAGE = 0, 1, 2


class Misused(Exception):
    """The command line or its circumstances are wrong; the message says what to do."""


@dataclass(frozen=True)
class Service:
    """A running service and how to log in to it."""

    url: str
    api_key: str = field(repr=False)
    nats: NatsLogin | None = None

    def client(self, *, session: bool = False) -> Client:
        """A client for code without an event loop."""
        return Client(self.url, self.api_key, session=session, nats=self.nats)

    def async_client(self, *, session: bool = False) -> AsyncClient:
        """A client for code in an event loop."""
        return AsyncClient(self.url, self.api_key, session=session, nats=self.nats)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what every command over a running service takes."""
    group = parser.add_argument_group("service")
    group.add_argument("--url", help="address of the gateway (PAMSPEC_URL, else that of `pamspec up` on --data)")
    group.add_argument("--key", help="API key (PAMSPEC_API_KEY, else the development key of --data)")
    group.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument("--json", action="store_true", help="JSON instead of lines for people")


def service(arguments: argparse.Namespace) -> Service:
    """The service that the arguments mean; Misused when none can be found."""
    data = DataDirectory(chosen(arguments.data))
    noted = data.noted()
    url = arguments.url or os.environ.get("PAMSPEC_URL") or noted.get("gateway")
    if not isinstance(url, str):
        raise Misused(f"nothing runs on {data.path}: start it with  pamspec up  or set PAMSPEC_URL and PAMSPEC_API_KEY")
    key = arguments.key or os.environ.get("PAMSPEC_API_KEY") or os.environ.get("PAMSPEC_DEV_KEY") or _kept_key(data)
    if not key:
        raise Misused("no API key: set PAMSPEC_API_KEY or give --key")
    return Service(url, key, _nats(noted))


def _kept_key(data: DataDirectory) -> str | None:
    file = data.path / "secrets" / "development-key"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def _nats(noted: dict[str, object]) -> NatsLogin | None:
    url = os.environ.get("PAMSPEC_AGENT_NATS_URL") or (noted.get("nats") if noted.get("agents") else None)
    return NatsLogin(url) if isinstance(url, str) else None


def reporting(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command whose refusals become one line on standard error, their details a second, and an exit code."""

    @functools.wraps(run)
    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except Misused as error:
            print(f"pamspec: {error}", file=sys.stderr)
            return USAGE
        except NoAnswer as error:
            print(f"pamspec: {error}", file=sys.stderr)
            if error.operation_id:
                print(f"pamspec: its outcome is open: operation_id {error.operation_id}", file=sys.stderr)
            return FAILED
        except ClientError as error:
            print(f"pamspec: {error}", file=sys.stderr)
            if isinstance(error, PamspecError) and (told := _details(error)):
                print(f"pamspec: {told}", file=sys.stderr)
            return FAILED
        except BrokenPipeError:
            # The reader of our output has left; nothing more can be said to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED

    return guarded


def _details(error: PamspecError) -> str:
    """What a refusal says beside its message; the field stands in the message already."""
    told = {name: value for name, value in error.details.items() if name != "field"}
    if error.policy_rule_id:
        told["policy_rule_id"] = error.policy_rule_id
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in told.items()
    )
