"""A thousand pages with a live socket each in one web process, while meters change two hundred times a second."""

import asyncio
import random
import resource
import threading
import time
from dataclasses import dataclass, field

import psutil

from capacity import slots
from capacity.leases import Lease
from core.ids import new_id, new_token
from fleet.principals import Principal
from frontend import tickets

from .. import fleet
from ..figures import Figure, median, ms, percentile
from ..ground import until
from ..pages import Page, opened
from ..web import served
from . import Options

PAGES, AGENTS, SLOTS, CHANGES_A_SECOND = 1_000, 20, 10, 200
#: How long meters change; the first part of it fills what is filled once, and counts for nothing in the memory's figure.
SECONDS, SECONDS_IN_FULL, WARM_SHARE = 120, 600, 0.2
#: Frames are counted in windows of this length.
WINDOW_SECONDS = 5.0
MOST_FRAMES_A_SECOND = 10
#: The agent by which the way to a page is timed changes this often.
PROBE_SECONDS = 0.5
MIB = 1024 * 1024


def measure(options: Options) -> list[Figure]:
    """Open the pages, change meters, stop; then compare what each page holds with what is so."""
    _allow_sockets()
    fleet.open_gate()
    agents = [fleet.make_agent(slots=SLOTS).name for _ in range(AGENTS)]
    probe = _Probe(agent=fleet.make_agent(slots=1).name)
    seconds = SECONDS_IN_FULL if options.full else SECONDS
    with served() as web:
        process = psutil.Process(web.process.pid)
        until(lambda: process.cpu_percent(interval=1.0) < 50)
        bare = process.memory_info().rss
        run = asyncio.run(_watched(web.port, process, agents, probe, seconds))
    return _figures(run, probe, bare=bare, seconds=seconds)


@dataclass
class _Run:
    """What was seen."""

    pages: list[Page]
    connected: int
    #: Resident memory, a second apart, from the first change on.
    memory: list[int]
    processor: float
    changes: int
    wrong: int
    settled_seconds: float


async def _watched(port: int, process: psutil.Process, agents: list[str], probe: "_Probe", seconds: float) -> _Run:
    principal = Principal.of_user(await asyncio.to_thread(fleet.owner))
    pages = await opened(port, PAGES, ticket=lambda: tickets.issue(principal=principal), window_seconds=WINDOW_SECONDS)
    pages[0].seen = probe.seen
    connected = process.memory_info().rss
    changer = _Changer(agents, probe, seconds=seconds)
    memory, busy = [], process.cpu_times()
    began = time.monotonic()
    for page in pages:
        page.windows.clear()
    changer.start()
    while changer.is_alive():
        await asyncio.sleep(1)
        memory.append(process.memory_info().rss)
    worked = process.cpu_times()
    processor = (worked.user + worked.system - busy.user - busy.system) / (time.monotonic() - began)
    changer.require()
    wrong, settled = await _settled(pages, [*agents, probe.agent])
    for page in pages:
        page.transport.close()
    return _Run(pages, connected, memory, processor, changer.done, wrong, settled)


async def _settled(pages: list[Page], names: list[str]) -> tuple[int, float]:
    """How many pages were wrong in the end, and after how long none was."""
    truth = {name: count.active for name, count in (await asyncio.to_thread(slots.states, names)).items()}
    began = time.perf_counter()

    def wrong() -> int:
        return sum(page.closed_with is not None or {name: value[1] for name, value in page.meters.items()} != truth for page in pages)

    while (left := wrong()) and time.perf_counter() - began < 30:
        await asyncio.sleep(0.02)
    return left, time.perf_counter() - began


@dataclass
class _Probe:
    """One agent whose changes are timed on their way to a page."""

    agent: str
    lags: list[float] = field(default_factory=list)
    _changed: tuple[int, float] | None = None

    def changing(self, active: int) -> None:
        """It is about to have so many runs."""
        self._changed = active, time.perf_counter()

    def seen(self, name: str, active: int | None) -> None:
        """A page was told."""
        if name == self.agent and self._changed and self._changed[0] == active:
            self.lags.append(time.perf_counter() - self._changed[1])
            self._changed = None


class _Changer(threading.Thread):
    """Takes and gives slots at a steady rate, each a change of one meter; the probe's among them."""

    def __init__(self, agents: list[str], probe: _Probe, *, seconds: float) -> None:
        super().__init__(daemon=True)
        self._agents, self._probe, self._seconds = agents, probe, seconds
        self._held: dict[str, list[Lease]] = {name: [] for name in (*agents, probe.agent)}
        self._failed: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        """Change until the time is over."""
        try:
            self._change_for(time.perf_counter())
        except BaseException as error:
            self._failed = error
            raise

    def require(self) -> None:
        """Raise what ended it early."""
        if self._failed:
            raise RuntimeError("the changes ended early") from self._failed

    def _change_for(self, began: float) -> None:
        probed = began
        pause = threading.Event()
        while (now := time.perf_counter()) - began < self._seconds:
            if now - probed >= PROBE_SECONDS:
                probed = now
                self._probe.changing(1 - len(self._held[self._probe.agent]))
                self._change(self._probe.agent, most=1)
            else:
                self._change(random.choice(self._agents), most=SLOTS)
            pause.wait(max(0.0, began + self.done / CHANGES_A_SECOND - time.perf_counter()))

    def _change(self, name: str, *, most: int) -> None:
        held = self._held[name]
        if held and (len(held) == most or random.random() < 0.5):
            slots.release(lease=held.pop())
        else:
            held.append(Lease(agent=name, execution_id=new_id(), token=new_token(), timeout_seconds=900))
            slots.acquire(lease=held[-1], limit=most, fleet_limit=None, preview="")
        self.done += 1


def _figures(run: _Run, probe: _Probe, *, bare: int, seconds: float) -> list[Figure]:
    each = (run.connected - bare) / PAGES
    # The first and the last window are cut off by the beginning and the end.
    windows = [count for page in run.pages for window, count in page.windows.items() if min(page.windows) < window < max(page.windows)]
    most = max(windows) / WINDOW_SECONDS
    warm, last = _levels(run.memory)
    rate = run.changes / seconds
    return [
        Figure(
            what=f"frames a second to the busiest of {PAGES:,} pages, {rate:.0f} changes a second",
            ours=f"{most:.1f}/s", floor=f"{MOST_FRAMES_A_SECOND}/s", ratio=most / MOST_FRAMES_A_SECOND, goal=1.0,
            note=f"windows of {WINDOW_SECONDS:.0f} s over {seconds:.0f} s, the median page {median(windows) / WINDOW_SECONDS:.1f}/s; "
            f"the web process used {run.processor:.2f} processors",
        ),
        Figure(
            what=f"pages of {PAGES:,} whose last state is not as the slots are, when the changes have ended",
            ours=f"{run.wrong}", floor="0", ratio=float(run.wrong), goal=0.0, note=f"all right {ms(run.settled_seconds)} after they ended",
        ),
        Figure(
            what="from a change to a page that shows it, p95, beside the second within which a meter moves",
            ours=ms(percentile(probe.lags, 0.95)), floor="1 s", ratio=percentile(probe.lags, 0.95), goal=1.0,
            note=f"{len(probe.lags)} changes of one agent, p50 {ms(median(probe.lags))}",
        ),
        Figure(
            what="memory of the web process in the end, beside its memory when it was warm",
            ours=f"{last / MIB:.1f} MiB", floor=f"{warm / MIB:.1f} MiB", ratio=last / warm, goal=1.02,
            note=f"medians of the last tenth of {seconds:.0f} s and of the tenth after its first {WARM_SHARE:.0%}",
        ),
        Figure(
            what="memory of an open page, beside the 64 KiB that a thread's stack would take at least",
            ours=f"{each / 1024:.1f} KiB", floor="64 KiB", ratio=each / 65_536, goal=1.0,
        ),
    ]  # fmt: skip


def _levels(memory: list[int]) -> tuple[float, float]:
    tenth = max(1, len(memory) // 10)
    warm = int(len(memory) * WARM_SHARE)
    return median(memory[warm : warm + tenth]), median(memory[-tenth:])


def _allow_sockets() -> None:
    """Each page is a file here and one in the web process, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = PAGES * 2 + 512
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
