"""Every page there is, and what must hold of each whatever is on it."""

from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page, Response, expect

from tests.browser.ground import Ground
from tests.browser.names import LONG_NAME

WAIT_MS = 20_000
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
#: Django's own markup.
SEARCH = {"label-title-only": "the search field of a list is labelled by an image with alternative text, which axe takes for no words"}
#: Everything that axe knows but its experiments; best practices as well. It would read style sheets anew, which our policy forbids.
RUN_AXE = """async ([off, only]) => {
  const rules = Object.fromEntries(off.map((rule) => [rule, {enabled: false}]));
  const options = only.length ? {runOnly: only} : {rules};
  const {violations} = await axe.run(document, {resultTypes: ["violations"], preload: false, ...options});
  return violations.flatMap(({id, nodes}) => nodes.slice(0, 5).map(({target, html, any, all, none}) => {
    const why = [...any, ...all, ...none].map(({message}) => message).join("; ");
    return `${id} at ${target.join(" ")}: ${why} ${html.slice(0, 200)}`;
  }));
}"""
#: Ends what moves, so that colours are those that stay.
SETTLED = """() => {
  for (const animation of document.getAnimations()) {
    try { animation.finish(); } catch { animation.cancel(); } // one without an end can only be cancelled
  }
}"""
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1)
    .map((node) => `${node.tagName}.${node.className} ${Math.round(node.getBoundingClientRect().right)} > ${width}`)
    .slice(0, 8);
}"""


@dataclass(frozen=True)
class Shown:
    """A page: its path, who looks, and what says that it is there in full. `allowed`: rules of axe that don't hold, and why."""

    name: str
    path: str
    user: str | None = "olga"
    ready: str = "main"
    live: bool = False
    status: int = 200
    allowed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


DASHBOARD = Shown("dashboard", "/", live=True, ready="tr[data-agent=research]")
TIMELINE = Shown("timeline", "/?view=timeline&span=180", live=True, ready=".timeline__head")
PAGES = (
    DASHBOARD,
    TIMELINE,
    Shown("agents", "/agents/", live=True, ready="capacity-meter"),
    Shown("agent", "/agents/research/", live=True, ready="capacity-meter"),
    Shown("executions", "/executions/", live=True, ready="[data-execution]"),
    Shown("execution-running", "/executions/{running}/", ready=".event"),
    Shown("execution-failed", "/executions/{failed}/", ready=".execution__error"),
    Shown("account", "/account/"),
    Shown("login", "/login/", user=None),
    Shown("not-found", "/nowhere/", status=404),
    Shown("hostile-dashboard", "/", user="hedda", live=True, ready="tr[data-agent]"),
    Shown("hostile-timeline", "/?view=timeline", user="hedda", live=True, ready=".timeline__head"),
    Shown("hostile-agents", "/agents/", user="hedda", live=True, ready="capacity-meter"),
    Shown("hostile-agent", f"/agents/{LONG_NAME}/", user="hedda", live=True, ready="capacity-meter"),
    Shown("hostile-executions", "/executions/", user="hedda", live=True, ready="[data-execution]"),
    Shown("hostile-execution", "/executions/{hostile}/", user="hedda"),
    Shown("no-agents-dashboard", "/", user="sten"),
    Shown("no-agents-timeline", "/?view=timeline", user="sten"),
    Shown("no-agents-agents", "/agents/", user="sten"),
    Shown("no-agents-executions", "/executions/", user="sten"),
    Shown("one-agent-dashboard", "/", user="uno", live=True, ready="tr[data-agent]"),
)
ADMIN = (
    Shown("admin", "/admin/"),
    Shown("admin-guide", "/admin/guide/"),
    Shown("admin-agents", "/admin/fleet/agent/", allowed=SEARCH),
    Shown("admin-executions", "/admin/backlog/execution/", allowed=SEARCH),
    Shown("admin-execution", "/admin/backlog/execution/{failed}/change/"),
    Shown("admin-audit", "/admin/fleet/auditentry/", allowed=SEARCH),
    Shown("admin-keys", "/admin/fleet/apikey/"),
    Shown("admin-links", "/admin/fleet/publiclink/"),
    Shown("admin-schedules", "/admin/runtime/schedule/"),
    Shown("admin-settings", "/admin/fleet/fleetsettings/1/change/", user="root"),
    Shown("admin-users", "/admin/auth/user/", user="root", allowed=SEARCH),
)
CROWDS = tuple(
    Shown(f"{user}-{name}", path, user=user, live=True, ready=ready)
    for user in ("fifty", "thousand")
    for name, path, ready in (
        ("dashboard", "/", "tr[data-agent]"),
        ("timeline", "/?view=timeline", ".timeline__head"),
        ("agents", "/agents/", "capacity-meter"),
        ("executions", "/executions/", "[data-execution]"),
    )
)


def open_page(page: Page, ground: Ground, shown: Shown) -> None:
    """Load it, until it is there in full."""
    answer: Response | None = page.goto(ground.address(shown.path))
    assert answer is not None
    assert answer.status == shown.status
    expect(page.locator(shown.ready).first).to_be_attached(timeout=WAIT_MS)
    if shown.live:
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    page.wait_for_load_state("networkidle")


def check_frame(page: Page) -> None:
    """One heading of the first rank, a title of its own, nothing wider than the window."""
    assert page.locator("h1:visible").count() == 1, page.locator("h1").all_inner_texts()
    assert page.title().strip() not in {"", "Trinity"}
    assert page.locator("html").get_attribute("lang")
    check_width(page)


def check_width(page: Page) -> None:
    """The page doesn't scroll sideways."""
    wide: list[str] = page.evaluate(TOO_WIDE)
    assert not wide, "\n".join(wide)


def check_axe(page: Page, shown: Shown, *, only: tuple[str, ...] = ()) -> None:
    """axe finds nothing; `only`: by these rules."""
    page.evaluate(SETTLED)
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    found: list[str] = page.evaluate(RUN_AXE, [list(shown.allowed), list(only)])
    assert not found, "\n".join(found)
