"""What a check finds, and checks run side by side, none of which can hold up the others."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum

#: Longest wait for one answer of what is checked.
ANSWER_SECONDS = 2.0
#: Longest wait for a check, which may have several questions.
CHECK_SECONDS = 10.0


class State(StrEnum):
    """How good or bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at: what was seen, and where it isn't as it should be, the line that mends it."""

    name: str
    state: State
    seen: str
    mend: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(name: str, seen: str) -> Finding:
    """All is well."""
    return Finding(name=name, state=State.OK, seen=seen)


def warn(name: str, seen: str, mend: str) -> Finding:
    """It works, and may not for long."""
    return Finding(name=name, state=State.WARN, seen=seen, mend=mend)


def fail(name: str, seen: str, mend: str) -> Finding:
    """It doesn't work."""
    return Finding(name=name, state=State.FAIL, seen=seen, mend=mend)


def worst(findings: Iterable[Finding]) -> State:
    """The worst state among them."""
    return max((finding.state for finding in findings), key=list(State).index, default=State.OK)


def examine(checks: Mapping[str, Check], *, seconds: float = CHECK_SECONDS) -> Iterator[Finding]:
    """What the checks find, in their order. One that breaks, or has not ended after `seconds`, is a failure of that name.

    Each has a thread of its own, left behind if it hangs: no time-out of a driver covers a server that is frozen.
    """
    running = {name: _begin(check) for name, check in checks.items()}
    for name, future in running.items():
        try:
            yield from future.result(seconds)
        except TimeoutError:
            yield fail(name, f"No answer within {seconds:g} s", "Look whether it is overloaded or frozen")
        except Exception as error:  # noqa: BLE001 - told as what was found; the other checks still have something to say
            yield fail(name, f"The check broke: {one_line(error)}", "Please report this")


def one_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _begin(check: Check) -> "Future[list[Finding]]":
    future: Future[list[Finding]] = Future()

    def run() -> None:
        try:
            future.set_result(list(check()))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
