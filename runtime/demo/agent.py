"""A command agent: reads its task on stdin, reports on the words in it, and says on stdout how far it is.

"work for 3 seconds" or "sleep 3" in the task makes it take that long, a task that begins with "fail" makes it fail.
Run it as `python -m runtime.demo.agent` or by its path; it needs the standard library only.
"""

import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

_WORK = re.compile(r"\b(?:work for|sleep|take)\s+(\d+(?:\.\d+)?)(?:\s*(?:s|sec|seconds?)\b)?", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
STEP_SECONDS = 0.5
INTERRUPTED = 130


def seconds_asked(task: str) -> float:
    """How long the task asks it to work; 0 if it doesn't say."""
    found = _WORK.search(task)
    return float(found[1]) if found else 0.0


def steps_of(seconds: float) -> Iterator[tuple[int, int, float]]:
    """Number of the step, of how many, and its length: together `seconds`."""
    count = max(1, round(seconds / STEP_SECONDS))
    for number in range(1, count + 1):
        yield number, count, seconds / count


def report_on(task: str) -> str:
    """A few lines about the words of `task`."""
    words = [word.lower() for word in _WORD.findall(task)]
    if not words:
        return "There was not a word in it."
    letters = sum(character.isalpha() for character in task)
    often = ", ".join(f"{word} ({count})" for word, count in Counter(words).most_common(3))
    return "\n".join([
        f"{len(words)} words, {len(set(words))} of them different; {letters} letters in {len(task)} characters.",
        f"Longest word: {max(words, key=len)}. On average {letters / len(words):.1f} letters a word.",
        f"Most frequent: {often}.",
    ])  # fmt: skip


def usage_for(task: str, report: str) -> dict[str, Any]:
    """What it would have cost a model, roughly: four characters a token."""
    into, out = len(task) // 4 + 1, len(report) // 4 + 1
    return {"input_tokens": into, "output_tokens": out, "cost_usd": round(into * 3e-6 + out * 15e-6, 6)}


def say(**line: Any) -> None:
    """One event, at once."""
    print(json.dumps(line), flush=True)  # noqa: T201 - this is how a command speaks


def interrupted(*_: object) -> NoReturn:
    """The polite end: say so and leave."""
    say(type="message", text="Interrupted, leaving.")
    raise SystemExit(INTERRUPTED)


def main() -> None:
    """Do the task on stdin."""
    signal.signal(signal.SIGINT, interrupted)
    task = sys.stdin.read()
    if task.lower().startswith("fail"):
        sys.exit(f"Failed as told: {task.strip()}")
    for number, count, seconds in steps_of(seconds_asked(task)):
        time.sleep(seconds)
        say(type="progress", step=number, of=count, text=f"Step {number} of {count}")
    report = report_on(task)
    say(type="result", response=report, usage=usage_for(task, report))


if __name__ == "__main__":
    main()
