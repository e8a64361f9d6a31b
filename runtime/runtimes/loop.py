"""One event loop thread a process, with one HTTP client in it: a call that waits on an agent costs no thread and can be dropped at once."""

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
CONNECT_SECONDS = 5.0
WRITE_SECONDS = 30.0
LEAVE_SECONDS = 2.0


class LoopThread:
    """A running event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._client: httpx.AsyncClient | None = None
        self._thread = threading.Thread(target=self.loop.run_forever, name="agent-calls", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work` in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def client(self) -> httpx.AsyncClient:
        """The shared client; to be called in the loop only.

        No connection is used twice: on one that the agent is just closing nobody could tell whether the task arrived.
        No redirects, and no proxy from the environment.
        """
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(WRITE_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                follow_redirects=False,
                trust_env=False,
            )
        return self._client

    def close(self) -> None:
        """End the thread; calls that wait are dropped."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LEAVE_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


class _Threads:
    """The loop thread of this process: made at the first call, and anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def get(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            return self._thread

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def forget(self) -> None:
        self._lock, self._thread = threading.Lock(), None


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.forget)
atexit.register(_threads.close)


def loop_thread() -> LoopThread:
    """This process's loop thread."""
    return _threads.get()
