"""The embedding process: `python -m pamspec_indexing.embedding MODEL THREADS NICE`.

It answers one request after another and ends with its standard input, so that it never outlives the service. What it
prints goes to standard error; it never prints a text that it was given.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pamspec_indexing.embedding.frames import Reply, framed, read_request
from pamspec_indexing.embedding.models import LOADING


def give_way(nice: int) -> None:
    """Let everything else on the machine run first.

    Where the kernel shares its cores among sessions, nice counts within a session alone; ours, which nobody else is in,
    then has a nice of its own.
    """
    os.nice(nice)
    session = Path("/proc/self/autogroup")
    if session.exists() and os.getsid(0) == os.getpid():
        # A container may show the file and not let it be written: it has a share of its own there.
        with suppress(OSError):
            session.write_text(str(nice), encoding="ascii")


def main() -> int:
    """0 at the end of its input."""
    name, threads, nice = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_way(nice)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    space, load = LOADING[name]
    model = load(threads)
    while (request := read_request(sys.stdin.buffer)) is not None:
        try:
            rows = model(request.texts, request.kind).reshape(len(request.texts), space.dimensions)
            reply = Reply(request.id, rows.astype("float32").tobytes())
        except Exception as error:
            reply = Reply(request.id, error=type(error).__name__)
        answers.write(framed(reply))
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
