"""Waiting for a state instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 10.0
now = time.monotonic


def until(predicate: Callable[[], T], seconds: float = SECONDS) -> T:
    """The first truthy value of `predicate`; an AssertionError that tells the last value after `seconds`."""
    deadline = now() + seconds
    pause = 0.005
    while not (value := predicate()):
        if now() > deadline:
            raise AssertionError(f"not within {seconds} s: {getattr(predicate, '__name__', predicate)} gave {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return value
