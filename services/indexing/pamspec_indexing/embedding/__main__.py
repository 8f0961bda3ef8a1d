"""The embedding process: `python -m pamspec_indexing.embedding MODEL THREADS NICE`.

It answers one request after another and ends with its standard input, so that it never outlives the service. What it
prints goes to standard error; it never prints a text that it was given.
"""

from __future__ import annotations

import os
import signal
import sys

from pamspec_indexing.embedding.frames import Reply, framed, read_request
from pamspec_indexing.embedding.models import LOADING


def main() -> int:
    """0 at the end of its input."""
    name, threads, nice = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(nice)
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
