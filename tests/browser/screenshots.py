"""Pictures of every page and state, in light and dark: `python -m tests.browser.screenshots docs/images`."""

import argparse
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import chromium
from tests.browser.ground import Ground
from tests.browser.pages import SETTLED, WAIT_MS, Shown, open_page

DESKTOP, PHONE, TABLET = (1200, 720), (360, 720), (768, 860)
SCHEMES = ("light", "dark")


@dataclass(frozen=True)
class Shot:
    """One picture: its name, the page, what is done on it before, and how large the window is."""

    name: str
    shown: Shown
    act: Callable[[Page], None] | None = None
    size: tuple[int, int] = DESKTOP


def _open_keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def _ask_to_release(page: Page) -> None:
    page.locator("[id^=release-]").last.click()
    expect(page.get_by_role("dialog")).to_be_visible()


def _ask_to_cancel_all(page: Page) -> None:
    page.get_by_role("button", name="Cancel all that match").click()
    expect(page.get_by_role("dialog").get_by_role("heading", name=re.compile("Cancel [0-9]+"))).to_be_visible(timeout=WAIT_MS)


def _choose_a_run(page: Page) -> None:
    plot = page.get_by_role("application")
    plot.focus()
    plot.press("Shift+ArrowRight")
    expect(page.locator("[data-part=card]")).to_be_visible(timeout=WAIT_MS)


def _make_a_key(page: Page) -> None:
    page.locator("main form").last.get_by_role("textbox").first.fill("for the pictures")
    page.locator("main form").last.get_by_role("button").click()
    page.wait_for_load_state("networkidle")


def _sign_out_elsewhere(page: Page) -> None:
    page.context.clear_cookies()
    page.get_by_role("searchbox").fill("anything")
    expect(page.locator("#signed-out")).to_be_visible(timeout=WAIT_MS)


def _confirm_pausing(page: Page) -> None:
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").select_option(label="Pause selected agents")
    page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).first.click()
    page.wait_for_load_state("networkidle")


def _to(part: str) -> Callable[[Page], None]:
    return lambda page: page.locator(part).first.evaluate("part => part.scrollIntoView({block: 'start'})")


def _page(name: str, path: str, ready: str, user: str = "olga") -> Shown:
    return Shown(name, path, user=user, live=True, ready=ready)


_LIST, _LINES = _page("list", "/", "tr[data-agent]"), _page("timeline", "/?view=timeline&span=180", ".timeline__head")
_AGENTS, _AGENT = _page("agents", "/agents/", "capacity-meter"), _page("agent", "/agents/research/", "capacity-meter")
_RUNS = _page("executions", "/executions/", "[data-execution]")
_RUN, _FAILED = (
    Shown("running", "/executions/{running}/", ready=".event"),
    Shown("failed", "/executions/{failed}/", ready=".event, .events__empty"),
)
SHOTS = (
    Shot("dashboard-list", _LIST),
    Shot("dashboard-search", _page("search", "/?q=status%3Apaused", "tr[data-agent]")),
    Shot("dashboard-keys", _LIST, _open_keys),
    Shot("dashboard-none", Shown("none", "/", user="sten")),
    Shot("dashboard-tablet", _LIST, size=TABLET),
    Shot("dashboard-phone", _LIST, size=PHONE),
    Shot("dashboard-session-over", _LIST, _sign_out_elsewhere),
    Shot("timeline-3h", _LINES),
    Shot("timeline-day", _page("day", "/?view=timeline&span=1440", ".timeline__head")),
    Shot("timeline-run", _LINES, _choose_a_run),
    Shot("timeline-phone", _LINES, size=PHONE),
    Shot("agents-tiles", _AGENTS),
    Shot("agents-tablet", _AGENTS, size=TABLET),
    Shot("agents-none", Shown("none", "/agents/", user="sten")),
    Shot("agent-capacity", _AGENT),
    Shot("agent-backlog", _AGENT, _to("#backlog-heading")),
    Shot("agent-paused", _page("paused", "/agents/translator/", "capacity-meter")),
    Shot("agent-over-limit", _page("over", "/agents/reviewer/", "capacity-meter")),
    Shot("agent-lost-slot", _page("lost", "/agents/deploy-bot/", "capacity-meter"), _ask_to_release),
    Shot("agent-phone", _AGENT, size=PHONE),
    Shot("executions-list", _RUNS),
    Shot("executions-cancel-all", _page("waiting", "/executions/?status=queued", "[data-execution]"), _ask_to_cancel_all),
    Shot("executions-none", Shown("none", "/executions/", user="sten")),
    Shot("executions-phone", _RUNS, size=PHONE),
    Shot("execution-running", _RUN),
    Shot("execution-waiting", Shown("waiting", "/executions/{waiting}/")),
    Shot("execution-succeeded", Shown("succeeded", "/executions/{succeeded}/")),
    Shot("execution-failed", _FAILED),
    Shot("execution-phone", _RUN, size=PHONE),
    Shot("account-keys", Shown("account", "/account/")),
    Shot("account-key-made", Shown("account", "/account/"), _make_a_key),
    Shot("login", Shown("login", "/login/", user=None)),
    Shot("not-found", Shown("not-found", "/nowhere/", status=404)),
    Shot("admin-first", Shown("admin", "/admin/")),
    Shot("admin-agents", Shown("admin-agents", "/admin/fleet/agent/")),
    Shot("admin-pause", Shown("admin-agents", "/admin/fleet/agent/"), _confirm_pausing),
    Shot("admin-executions", Shown("admin-executions", "/admin/backlog/execution/")),
    Shot("admin-audit", Shown("admin-audit", "/admin/fleet/auditentry/")),
)
#: While the slot store is away.
DOWN = (
    Shot("dashboard-store-down", Shown("down", "/", ready="tr[data-agent]")),
    Shot("agents-store-down", Shown("down", "/agents/", ready="capacity-meter")),
    Shot("agent-store-down", Shown("down", "/agents/research/", ready="capacity-meter")),
)


def take(ground: Ground, browser: Browser, shot: Shot, directory: Path) -> None:
    """The picture in both schemes."""
    for scheme in SCHEMES:
        width, height = shot.size
        size = {"width": width, "height": height}
        # Without motion: a meter that pulses would be caught at any brightness.
        window = ground.window(browser, shot.shown.user, color_scheme=scheme, reduced_motion="reduce", viewport=size)
        page = window.new_page()
        open_page(page, ground, shot.shown)
        if shot.act:
            shot.act(page)
        page.evaluate(SETTLED)
        page.screenshot(path=directory / f"{shot.name}-{scheme}.png")
        window.close()


def main() -> None:
    """All of them, or those whose names begin with one of `--only`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=[""])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trinity-pictures-") as own, sync_playwright() as playwright:
        program = chromium.chromium(playwright.chromium.executable_path)
        if program is None:
            raise SystemExit(chromium.HOW_TO_GET_ONE)
        browser = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS)
        ground = Ground(Path(own))
        try:
            _take_all(ground, browser, options.directory, tuple(options.only))
        finally:
            browser.close()
            ground.close()


def _take_all(ground: Ground, browser: Browser, directory: Path, only: tuple[str, ...]) -> None:
    for shot in SHOTS:
        if shot.name.startswith(only):
            take(ground, browser, shot, directory)
    with ground.store_down():
        for shot in DOWN:
            if shot.name.startswith(only):
                take(ground, browser, shot, directory)


if __name__ == "__main__":
    main()
