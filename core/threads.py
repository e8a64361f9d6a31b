"""A fixed number of threads that may use the database on behalf of the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded pool: however many requests come, no more than `size` connections to the database."""

    def __init__(self, *, size: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function`'s result, as it is: for work that looks after its database connection itself."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    async def query(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function`'s result; its database connection is looked after as Django does around a request."""
        return await self.run(_tidily, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Take no more work; what runs may finish."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _tidily(function: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()
