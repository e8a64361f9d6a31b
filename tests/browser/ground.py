"""A stack with a seeded fleet, and browser windows in which somebody is signed in already."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext

from tests.stack import Stack

#: Nothing is carried here: what runs must not be found lost, nor what waits be started, while one looks.
STILL = {
    "TRINITY_LEASE_SECONDS": "86400",
    "TRINITY_LEASE_RENEW_SECONDS": "3600",
    "TRINITY_SWEEP_SECONDS": "3600",
    "TRINITY_RECONCILE_SECONDS": "3600",
    "TRINITY_ORPHAN_SECONDS": "86400",
}
_REFILL = "from capacity.manager import CapacityManager; CapacityManager().refill()"
_SEED = "from tests.browser.demo import main; main()"


class Ground:
    """The stack, and who is signed in on it."""

    def __init__(self, directory: Path) -> None:
        """Start and seed it."""
        self.stack = Stack(directory, workers=0, **STILL)
        told: dict[str, dict[str, str]] = json.loads(self.stack._command("shell", "--no-imports", "-c", _SEED).splitlines()[-1])
        self._sessions = told["sessions"]
        #: Executions worth a page: `{what it is: its id}`.
        self.executions = told["executions"]

    @property
    def url(self) -> str:
        """Where the pages are."""
        return self.stack.url

    def address(self, path: str) -> str:
        """The path's URL; `{running}` and the like in it stand for an execution's id."""
        return self.url + path.format(**self.executions)

    def window(self, browser: Browser, user: str | None, **options: Any) -> BrowserContext:
        """A browser's context in which `user` is signed in, or nobody."""
        context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": self._sessions[user], "url": self.url}])
        return context

    @contextmanager
    def store_down(self) -> Iterator[None]:
        """The slot store away, and back with what it knew."""
        self.stack.store.kill()
        try:
            yield
        finally:
            self.stack.start_store()
            self.stack._command("shell", "--no-imports", "-c", _REFILL)

    def close(self) -> None:
        """End everything."""
        self.stack.close()
