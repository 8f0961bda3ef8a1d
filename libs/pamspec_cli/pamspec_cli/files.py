"""JSON documents that a command reads from files."""

import json
import sys
from pathlib import Path
from typing import Any

from pamspec_cli.connection import Misused


def json_document(path: str) -> Any:
    """The JSON value in a file; - is standard input; Misused when there is none."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise Misused(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Misused(f"{path} holds no JSON: {error}") from None
