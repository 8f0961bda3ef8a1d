"""Logs: one JSON object a line, with a machine-readable action, and the trace that it was written in."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from pamspec_common.telemetry import tracing

_EXTRA = ("action", "service", "task", "operation", "partition", "scope_key", "sequence", "error", "count", "path")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (traced := tracing.ids()) is not None:
            line["trace_id"], line["span_id"] = traced
        line.update({name: str(getattr(record, name)) for name in _EXTRA if hasattr(record, name)})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def setup_logging(level: str) -> None:
    """Send every log record to standard error as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
