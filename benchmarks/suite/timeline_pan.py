"""Panning the timeline for half a minute with a day of a large fleet in it, in a real Chromium."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.test import Client
from playwright.sync_api import Browser, Page, sync_playwright

from tests import chromium

from .. import fleet, past
from ..figures import Figure
from ..web import HOST, Web, served
from . import Options

AGENTS, SLOTS, HOURS = 50, 10, 24
RUNS, SECONDS = 220, 30
#: A task of the page that takes longer is felt.
LONG_MS = 50
SIZE = {"width": 1440, "height": 900}
#: Pans to and fro over the whole day, at one zoom after the other, and down through the agents; counts frames and long tasks.
PAN = """async ({seconds, longMs}) => {
  const plot = document.querySelector("[data-part=plot]"), scroll = document.querySelector("[data-part=scroll]");
  const tasks = [], observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)));
  observer.observe({type: "longtask"});
  const at = {bubbles: true, cancelable: true, clientX: 800, clientY: 500};
  const wheel = (more) => plot.dispatchEvent(new WheelEvent("wheel", {...at, ...more}));
  const zooms = [1440, 720, 360, 60, 180, 15];
  let frames = 0, worstGap = 0, zoom = -1, last = performance.now();
  const began = last;
  for (;;) {
    const now = await new Promise(requestAnimationFrame);
    const part = (performance.now() - began) / (seconds * 1000);
    worstGap = Math.max(worstGap, now - last);
    last = now;
    frames += 1;
    if (part >= 1) break;
    const due = Math.floor(part * zooms.length);
    if (due !== zoom) {
      // From the live edge each time: what lies before the past that was made is no work to draw.
      document.querySelector(`[data-span="${zooms[zoom = due]}"]`).click();
      const live = document.querySelector("[data-act=live]");
      if (live.getAttribute("aria-pressed") === "false") live.click();
    }
    wheel({shiftKey: true, deltaY: frames % 60 < 30 ? -14 : 14});
    scroll.scrollTop += Math.sin(part * 25) > 0 ? 9 : -9;
    plot.dispatchEvent(new PointerEvent("pointermove", {clientX: 700 + 300 * Math.sin(part * 60), clientY: 500}));
  }
  observer.disconnect();
  return {frames, worstGap, long: tasks.filter((task) => task > longMs).length, worst: Math.max(0, ...tasks)};
}"""


@dataclass(frozen=True, kw_only=True)
class Panned:
    """What half a minute of panning was like."""

    frames: int
    long: int
    worst_ms: float
    #: The same by the processor's time alone, which other programs of the machine don't lengthen.
    long_by_processor: int
    worst_by_processor_ms: float


def measure(options: Options) -> list[Figure]:
    """Long tasks of the page, by the clock and by the processor, and frames."""
    fleet.open_gate(ceiling=SLOTS)
    rows = past.fill(agents=AGENTS, slots=SLOTS, hours=HOURS, runs=RUNS)
    with served() as web, opened(web) as (browser, page):
        loaded(page)
        panned = pan(browser, page, seconds=SECONDS * (4 if options.full else 1))
    what = f"in {SECONDS * (4 if options.full else 1)} s of panning, {AGENTS} agents × {SLOTS} slots × {HOURS} h, {rows:,} runs"
    return [
        Figure(
            what=f"tasks of the page over {LONG_MS} ms of processor time {what}", ours=str(panned.long_by_processor), floor="0",
            ratio=panned.long_by_processor, goal=0.0, note=f"worst {panned.worst_by_processor_ms:.0f} ms",
        ),
        Figure(
            what=f"long tasks by the clock, as the page's own observer counts them, {what}", ours=str(panned.long), floor="0",
            ratio=panned.long, note=f"worst {panned.worst_ms:.0f} ms",
        ),
        Figure(
            what=f"frames a second, beside 60, {what}", ours=f"{panned.frames / SECONDS:.0f}/s", floor="60/s",
            ratio=panned.frames / SECONDS / 60,
        ),
    ]  # fmt: skip


@contextmanager
def opened(web: Web) -> Iterator[tuple[Browser, Page]]:
    """A browser in which the ground's person looks at a day of the timeline."""
    client = Client()
    client.force_login(fleet.owner())
    with sync_playwright() as playwright:
        program = chromium.chromium(playwright.chromium.executable_path)
        if program is None:
            raise RuntimeError(chromium.HOW_TO_GET_ONE)
        browser = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS)
        try:
            context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
            url = f"http://{HOST}:{web.port}"
            context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": url}])
            page = context.new_page()
            page.goto(f"{url}/?view=timeline&span=1440")
            yield browser, page
        finally:
            browser.close()


def loaded(page: Page) -> None:
    """Wait until all in view is there."""
    page.locator("[data-part=busy]").wait_for(state="hidden", timeout=60_000)
    page.wait_for_load_state("networkidle")


def pan(browser: Browser, page: Page, *, seconds: int) -> Panned:
    """Pan, and tell how that was."""
    with tempfile.TemporaryDirectory() as made:
        trace = Path(made) / "trace.json"
        browser.start_tracing(page=page, path=trace, categories=["toplevel", "disabled-by-default-devtools.timeline"])
        seen: dict[str, Any] = page.evaluate(PAN, {"seconds": seconds, "longMs": LONG_MS})
        browser.stop_tracing()
        tasks = _tasks(json.loads(trace.read_text())["traceEvents"])
    return Panned(
        frames=seen["frames"],
        long=seen["long"],
        worst_ms=seen["worst"],
        long_by_processor=sum(task > LONG_MS for task in tasks),
        worst_by_processor_ms=max(tasks, default=0),
    )


def _tasks(events: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of processor time of each task of the threads that run pages."""
    mains = {(event["pid"], event["tid"]) for event in events if event.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [event for event in events if event.get("name") == "RunTask" and "tdur" in event]
    return [task["tdur"] / 1000 for task in tasks if (task["pid"], task["tid"]) in mains]
