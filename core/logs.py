"""Log lines: one JSON object each, or coloured text on a terminal."""

import json
import logging
import os
import sys
from datetime import datetime
from functools import cache
from typing import Any

import structlog

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso"),
    structlog.processors.format_exc_info,
]


def formatter() -> logging.Formatter:
    """The formatter of every handler; also points structlog at the standard library's handlers."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last = _console() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
    )


def legible(line: str) -> list[str]:
    """A line of a program's output as a person reads it: one of our own JSON objects as coloured text, others as they are."""
    try:
        said = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not said.keys() >= {"event", "level", "timestamp"}:
        return [line]
    return str(_console()(None, "", said | {"timestamp": _time_of_day(str(said["timestamp"]))})).splitlines()


@cache
def _console() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ, pad_event_to=0, pad_level=False)


def _time_of_day(timestamp: str) -> str:
    """In the terminal's own zone: whoever watches it knows the day."""
    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return timestamp
