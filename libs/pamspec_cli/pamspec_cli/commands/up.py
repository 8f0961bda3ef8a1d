"""`pamspec up`: servers, services and the public door, until SIGINT or SIGTERM; then everything stops in order."""

import argparse
import asyncio
import os
import signal
from contextlib import AsyncExitStack

import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError

from pamspec_cli import composition, development, processes, sealed
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.deployment import Deployment
from pamspec_cli.servers.process import ServerError
from pamspec_cli.stack import Addresses, servers
from pamspec_common.sealing import WrongKey
from pamspec_common.telemetry import setup_logging, setup_metrics, tracing

SUMMARY = "run the whole service with its servers, until Ctrl-C"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--processes", action="store_true", help="one process per service instead of one for all")
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument("--port", type=_port, metavar="N", help="port of the gateway (else a free one, kept)")


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("a port lies between 1 and 65535; 0 takes a free one")
    return number


def run(arguments: argparse.Namespace) -> int:
    """0 after an ordered stop."""
    setup_logging(os.environ.get("PAMSPEC_LOG_LEVEL", "WARNING"))
    setup_metrics()
    tracing.setup()
    with DataDirectory(chosen(arguments.data)) as data:
        try:
            return uvloop.run(_until_signal(data, arguments))
        except SettingsError as error:
            raise ServerError(f"a variable is not the JSON that it has to be: {error}; see docs/running.md") from None
        except ValidationError as error:
            if error.title != "Settings":
                raise
            raise ServerError(f"{_unusable(error)}; see docs/running.md") from None
        except WrongKey as error:
            raise ServerError(f"{error}; see docs/running.md") from None
        finally:
            tracing.shutdown()


def _unusable(error: ValidationError) -> str:
    """The variables that can't be used, and why, without what they hold."""
    return "; ".join(
        f"PAMSPEC_{str(one['loc'][0]).upper() if one['loc'] else '...'} can't be used: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    )


async def _until_signal(data: DataDirectory, arguments: argparse.Namespace) -> int:
    """A signal cancels the work, which unwinds in order; a second one ends this process and, with it, its children."""
    work = asyncio.create_task(_serve(data, arguments), name="up")
    asked = False

    def ask() -> None:
        nonlocal asked
        if asked:
            os._exit(1)
        asked = True
        print("stopping", flush=True)
        work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ask)
    try:
        await work
    except asyncio.CancelledError:
        if not asked:
            raise
    print("stopped", flush=True)
    return 0


async def _serve(data: DataDirectory, arguments: argparse.Namespace) -> None:
    if data.unfinished_restore.exists() and not os.environ.get("PAMSPEC_DATABASE_URL"):
        raise ServerError(
            f"a backup was put here that nothing may serve yet: call  pamspec restored --data {data.path}"
        )
    key = development.chosen_key(data)
    print(f"starting  servers and services on {data.path}", flush=True)
    async with AsyncExitStack() as stack:
        addresses = await stack.enter_async_context(servers(data))
        await sealed.fitting(addresses.database_url)
        deployment = Deployment.of(data, addresses, arguments.port)
        await development.ensure_principal(addresses.database_url, deployment.key_pepper.encode(), key)
        pids: dict[str, int | None] = {}
        if arguments.processes:
            started = await stack.enter_async_context(processes.running(data, deployment))
            pids = {name: service.process.pid for name, service in started.items()}
            gateway = deployment.url("gateway")
        else:
            gateway = await stack.enter_async_context(composition.running(deployment))
        await development.ensure_scope(gateway, key)
        data.note(
            {
                "gateway": gateway,
                "mode": "processes" if arguments.processes else "one process",
                "processes": pids,
                "nats": addresses.nats_url,
                "agents": bool(addresses.callout),
            }
        )
        _greet(gateway, addresses, key, data)
        if arguments.processes:
            print(f"logs      {data.path / 'services'}/*/*.log")
        print("Ctrl-C stops it", flush=True)
        await asyncio.Event().wait()


def _greet(gateway: str, addresses: Addresses, key: development.DevelopmentKey, data: DataDirectory) -> None:
    print(f"gateway   {gateway}   ({gateway}/docs)")
    if addresses.callout:
        print(f"bus       {addresses.nats_url}   (agents log in with their keys)")
    print(f"key       {key.text}")
    print(f"data      {data.path}")
    print(f"shell     {development.export_line(gateway, key, data)}")
    print(f"try it    {development.curl_line(gateway, key)}", flush=True)
