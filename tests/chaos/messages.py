"""The broker's messages as a bad network would treat them: dropped, or delivered again and again."""

import threading
import time

import redis

QUEUE = "celery:trinity"


class Thief(threading.Thread):
    """For some seconds takes messages out of the queue before the workers do; drops them, or puts each back several times."""

    def __init__(self, url: str, *, seconds: float, copies: int, most: int = 15) -> None:
        super().__init__(name="thief", daemon=True)
        self._url, self._seconds, self._copies, self._most = url, seconds, copies, most
        self.taken = 0
        self.start()

    def run(self) -> None:
        """Until the time is over or the broker is gone."""
        until = time.monotonic() + self._seconds
        kept: list[bytes] = []
        with redis.Redis.from_url(self._url, socket_timeout=3, socket_connect_timeout=1) as broker:
            try:
                while time.monotonic() < until and self.taken < self._most:
                    found = broker.blpop([QUEUE], timeout=0.2)
                    if found:
                        self.taken += 1
                        kept.append(found[1])  # type: ignore[index]
                        self._deliver(broker, kept[-1])
                if self._copies:  # late ones as well, whose run may be long over
                    for message in kept:
                        self._deliver(broker, message)
            except redis.RedisError:
                return

    def _deliver(self, broker: redis.Redis, message: bytes) -> None:
        for _ in range(self._copies):
            broker.rpush(QUEUE, message)
