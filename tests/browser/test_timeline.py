"""The timeline as a person uses it: lanes that fill while tasks run, moved and read by pointer and by keys alone."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.agents.server import AgentServer
from tests.flows.submitting import submit
from tests.stack import Stack

WAIT_MS = 20_000
#: Pans for some seconds, a step a frame, and tells how many frames it drew.
PAN = """async (seconds) => {
  const plot = document.querySelector("[data-part=plot]");
  let frames = 0;
  for (const began = performance.now(); performance.now() - began < seconds * 1000; frames += 1) {
    await new Promise(requestAnimationFrame);
    plot.dispatchEvent(new WheelEvent("wheel", {bubbles: true, cancelable: true, shiftKey: true, deltaY: frames % 100 < 50 ? -30 : 30}));
  }
  return frames;
}"""


@pytest.fixture
def timeline(stack: Stack, page: Page) -> Page:
    """The timeline, tall enough for every agent that other tests have left."""
    page.set_viewport_size({"width": 1280, "height": 5000})
    page.goto(f"{stack.url}/login/?next=/%3Fview%3Dtimeline%26span%3D15")
    page.locator("[name=username]").fill("olga")
    page.locator("[name=password]").fill("olga-password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#timeline-summary")).to_contain_text("From", timeout=WAIT_MS)
    return page


def test_runs_appear_in_their_lanes_and_are_read_by_keys_alone(stack: Stack, agent_server: AgentServer, timeline: Page) -> None:
    page, plot = timeline, timeline.get_by_role("application")
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    head = page.locator(".timeline__head", has=page.get_by_role("link", name=agent, exact=True))
    expect(head).to_contain_text("0/2", timeout=WAIT_MS)
    page.get_by_text("What is in view, as a table").click()
    rows = page.get_by_role("group", name="Executions in view").locator("tbody tr").filter(has_text=agent)

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/timeline" in request.url else None)
    for number in range(3):
        submit(stack.api(), agent, f"hang <b>{number}</b>")
    expect(head).to_contain_text("2/2, 1 waiting", timeout=WAIT_MS)
    expect(rows.filter(has_text="running")).to_have_count(2, timeout=WAIT_MS)
    expect(rows.filter(has_text="waiting")).to_have_count(1)
    assert all("from=" in url and "to=" not in url for url in asked), "the tail alone is asked for"

    voice, card = page.locator("[data-part=voice]"), page.locator("[data-part=card]")
    plot.focus()
    for key in ["Shift+ArrowRight", *["Shift+ArrowDown"] * 40, *["Shift+ArrowUp"] * 80]:
        if agent in (voice.text_content() or ""):
            break
        plot.press(key)
    expect(voice).to_contain_text("hang <b>")
    expect(card).to_contain_text("hang <b>")
    plot.press("Escape")
    expect(card).to_be_hidden()
    agent_server.let_go()
    expect(rows.filter(has_text="succeeded")).to_have_count(3, timeout=WAIT_MS)


def test_what_is_in_view_is_in_the_address_and_moves_smoothly(timeline: Page) -> None:
    page, plot = timeline, timeline.get_by_role("application")
    live = page.get_by_role("button", name="Live", exact=True)
    plot.press("-")
    plot.press("ArrowLeft")
    page.wait_for_url(lambda url: "span=60" in url and "at=" in url, timeout=WAIT_MS)
    expect(live).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(live).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_role("button", name="1 h", exact=True)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("application").press("End")
    page.wait_for_url(lambda url: "at=" not in url and "span=60" in url, timeout=WAIT_MS)

    # How long a task takes is measured in benchmarks/: a machine that runs all the tests beside it is no place to.
    assert page.evaluate(PAN, 3) > 10


@pytest.fixture
def clock_ahead(page: Page) -> None:
    """The browser's clock three hours ahead of the server's."""
    page.add_init_script("const real = Date.now; Date.now = () => real() + 3 * 3_600_000;")


def test_a_browser_whose_clock_is_hours_ahead_is_shown_the_servers_present(clock_ahead: None, timeline: Page) -> None:
    expect(timeline.locator("#timeline-summary")).to_contain_text("From")
    expect(timeline.get_by_role("button", name="Live", exact=True)).to_have_attribute("aria-pressed", "true")
    asked = timeline.evaluate(
        "performance.getEntriesByType('resource').map((entry) => entry.name).filter((url) => url.includes('/api/timeline'))"
    )
    begins = [datetime.fromisoformat(parse_qs(urlsplit(url).query)["from"][0]) for url in asked]
    assert begins
    assert max(begins) < datetime.now(UTC)
