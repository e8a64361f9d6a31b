"""Waiting a moment."""

import threading

_never = threading.Event()


def pause(seconds: float) -> None:
    """Wait so long, by the monotonic clock.

    Unlike `time.sleep` it never raises: under a preloaded library that shifts the host's clock that one does, and would end
    threads on which every lease of the process hangs.
    """
    _never.wait(seconds)
