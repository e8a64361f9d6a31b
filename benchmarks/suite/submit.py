"""Tasks accepted a second over HTTP, beside a bare view in the same web process."""

import http.client
import json
import secrets
import threading
import time
from itertools import cycle

from fleet import services

from .. import fleet
from ..figures import Better, Figure, median, spread
from ..web import HOST, served
from . import Options

CLIENTS, BLOCK = 4, 120
#: No worker runs: each agent's slots fill and stay full, and granted tasks need fresh ones.
SLOTS = 30


def measure(options: Options) -> list[Figure]:
    """Blocks of requests in turns: granted at once, put in line, bare."""
    fleet.open_gate()
    key = services.create_key(owner=fleet.owner(), scope="user", name="bench").key
    blocks = options.rounds * 2
    with served() as web:
        load = _Load(port=web.port, key=key)
        full = fleet.make_agent(slots=1)
        load.rate([f"/api/agents/{full.name}/task"])
        load.rate([f"/bare/{full.pk}"])
        rates = [(load.rate(_free()), load.rate([f"/api/agents/{full.name}/task"]), load.rate([f"/bare/{full.pk}"])) for _ in range(blocks)]
    bare = median([rate[2] for rate in rates])
    return [
        Figure(
            what=f"POST /task async, {what}, beside a bare view", ours=f"{median([rate[kind] for rate in rates]):.0f}/s",
            floor=f"{bare:.0f}/s", ratio=median([rate[kind] / rate[2] for rate in rates]), goal=0.6, better=Better.HIGHER,
            note=f"{blocks} interleaved blocks of {BLOCK}, {CLIENTS} clients, {spread([rate[kind] / rate[2] for rate in rates])}",
        )
        for kind, what in enumerate(("granted a slot", "put in line"))
    ]  # fmt: skip


def _free() -> list[str]:
    agents = [fleet.make_agent(slots=SLOTS) for _ in range(-(-BLOCK // SLOTS))]
    return [f"/api/agents/{agent.name}/task" for agent in agents]


class _Load:
    """Clients that each send their share, one request after the other on one connection."""

    def __init__(self, *, port: int, key: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._wrong: list[str] = []

    def rate(self, paths: list[str]) -> float:
        """Requests a second over one block, shared out over the paths."""
        shares: list[list[str]] = [[] for _ in range(CLIENTS)]
        for number, path in zip(range(BLOCK), cycle(paths), strict=False):
            shares[number % CLIENTS].append(path)
        threads = [threading.Thread(target=self._send, args=[share]) for share in shares]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._wrong:
            raise RuntimeError(self._wrong[0])
        return BLOCK / (time.perf_counter() - began)

    def _send(self, paths: list[str]) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=30)
        for path in paths:
            body = json.dumps({"message": f"sleep none {secrets.token_hex(8)}", "async_mode": True})
            connection.request("POST", path, body=body, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 202:
                self._wrong.append(f"{path}: {answer.status} {text}")
        connection.close()
