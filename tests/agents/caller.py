"""A worker's calls in miniature, to be measured: `python -m tests.agents.caller URL MESSAGE…` prints a JSON line for each call.

`{"error_code", "error", "growth"}`: by how many bytes the call raised the most memory that the process ever used.
"""

import json
import os
import resource
import sys
import uuid

from runtime.runtimes import runtime_for
from runtime.runtimes.base import Run, Stop


def main(url: str, *messages: str) -> None:
    """Make the calls one after another; the first, unmeasured, brings in what every call needs."""

    def perform(message: str) -> tuple[str, str]:
        ids = {"execution_id": uuid.uuid4(), "token": uuid.uuid4()}
        run = Run(settings={"url": url}, message=message, agent_name="far", timeout_seconds=120, **ids)
        result = runtime_for("http").run(run, lambda kind, data: False, Stop())
        return result.error_code, result.error

    perform("warm up")
    for message in messages:
        before = _peak()
        error_code, error = perform(message)
        sys.stdout.write(json.dumps({"error_code": error_code, "error": error, "growth": _peak() - before}) + "\n")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
    main(*sys.argv[1:])
