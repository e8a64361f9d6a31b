"""The dashboard as somebody works with it: it moves by itself, and what it changes is changed."""

from itertools import product
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from capacity.health import health_of
from capacity.selectors import Meter
from tests.agents.server import AgentServer
from tests.flows.submitting import submit
from tests.stack import Stack

WAIT_MS = 15_000


def open_dashboard(page: Page, stack: Stack, agent: str) -> None:
    """Sign in; the list shows the one agent, live."""
    page.goto(f"{stack.url}/login/?next=/%3Fq={agent}")
    page.locator("[name=username]").fill("olga")
    page.locator("[name=password]").fill("olga-password")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{stack.url}/?q={agent}")
    expect(page.locator("#live")).to_have_text("Live", timeout=WAIT_MS)
    page.wait_for_load_state("networkidle")


def test_the_list_moves_without_a_request_and_its_controls_change_what_they_say(
    stack: Stack, agent_server: AgentServer, page: Page, console_errors: list[str]
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    api = stack.api()
    open_dashboard(page, stack, agent)
    row = page.locator(f'tr[data-agent="{agent}"]')
    used, waiting, health = (row.locator(f"[data-cell={cell}]") for cell in ("used", "waiting", "health"))
    limit, said = row.get_by_role("spinbutton"), page.locator("#said")
    expect(page.locator("#queued")).to_have_text("0", timeout=WAIT_MS)

    # Live, without a request
    made: list[str] = []
    page.on("request", lambda request: made.append(request.url))
    for number in range(3):
        submit(api, agent, f"hang {number}")
    expect(used).to_have_text("2/2", timeout=WAIT_MS)
    expect(waiting).to_have_text("1", timeout=WAIT_MS)
    expect(health).to_have_text("At capacity")
    expect(page.locator("#queued")).to_have_text("1")
    expect(page.locator("#oldest")).to_have_attribute("data-agent", agent)
    assert made == []

    # The limit, by steps that are one change
    raising = row.get_by_role("button", name=f"Raise the limit of {agent}")
    raising.click()
    raising.click()
    expect(said).to_have_text(f"The limit of {agent} is 4 now.", timeout=WAIT_MS)
    expect(used).to_have_text("3/4", timeout=WAIT_MS)
    assert len([url for url in made if "/capacity" in url]) == 1
    # Changed by somebody else while one types: said, and shown
    limit.fill("7")
    assert api.put(f"/api/agents/{agent}/capacity", json={"max_parallel_tasks": 3}).status_code == httpx.codes.OK
    expect(used).to_have_text("3/3", timeout=WAIT_MS)
    limit.press("Enter")
    expect(said).to_contain_text(f"olga has set the limit of {agent} to 3 meanwhile", timeout=WAIT_MS)
    expect(limit).to_have_value("3")
    limit.fill("0")
    limit.press("Enter")
    expect(said).to_contain_text("max_parallel_tasks", timeout=WAIT_MS)
    expect(limit).to_have_value("3")

    # Pausing
    row.get_by_role("button", name=f"Pause {agent}").click()
    expect(health).to_have_text("Paused", timeout=WAIT_MS)
    expect(row.locator("[data-cell=limited]")).to_have_text("Paused")
    resume = row.get_by_role("button", name=f"Resume {agent}")
    expect(resume).to_be_focused()
    page.keyboard.press("Enter")
    expect(health).to_have_text("At capacity", timeout=WAIT_MS)
    agent_server.let_go()
    expect(used).to_have_text("0/3", timeout=WAIT_MS)
    expect(health).to_have_text("Idle")
    # News of a pause that comes while the fleet's is asked for: nothing was done to the agent itself.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button id=pause-all disabled></button>')")
    assert api.post(f"/api/agents/{agent}/pause/").status_code == httpx.codes.OK
    expect(row.locator("[data-cell=limited]")).to_have_text("Fleet paused", timeout=WAIT_MS)
    expect(row.get_by_role("button", name=f"Pause {agent}")).to_be_visible()
    # The browser itself reports answers that are refusals.
    assert [error.split("status of ")[1][:3] for error in console_errors] == ["412", "400"]
    console_errors.clear()


def test_search_and_order_are_in_the_address_and_keys_lead_about(stack: Stack, agent_server: AgentServer, page: Page) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url})
    open_dashboard(page, stack, agent)
    row = page.locator(f'tr[data-agent="{agent}"]')
    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search agents")
    expect(field).to_be_focused()
    field.fill(f"status:paused {agent}")
    expect(page.get_by_text("No agent is like that")).to_be_visible(timeout=WAIT_MS)
    assert "q=status%3Apaused" in page.url
    field.fill(f"owner:me {agent}")
    expect(row).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("link", name="Waiting").click()
    expect(page.get_by_role("columnheader", name="Waiting")).to_have_attribute("aria-sort", "descending", timeout=WAIT_MS)
    assert "sort=-waiting" in page.url
    page.go_back()
    expect(page.get_by_role("columnheader", name="Agent", exact=True)).to_have_attribute("aria-sort", "ascending", timeout=WAIT_MS)
    page.go_back()
    expect(field).to_have_value(f"status:paused {agent}", timeout=WAIT_MS)

    page.locator("h1").click()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)
    # The same word for every load as the server's.
    loads = [(max, active, queued, paused) for max, active, queued, paused in product((1, 3), (None, 0, 1, 2, 3, 4), (0, 2), (False, True))]
    table = page.evaluate(
        """async loads => {
          const {healthOf} = await import('/static/trinity/state/health.js');
          return loads.map(([max, active, queued, paused]) => healthOf({max, active, queued, paused}));
        }""",
        loads,
    )
    assert table == [health_of(_meter(*load)).value for load in loads]
    # A session that ends is told, with a way back.
    page.context.clear_cookies()
    field.fill("anything")
    notice = page.get_by_role("alert").get_by_role("link", name="Sign in again")
    expect(notice).to_be_visible(timeout=WAIT_MS)
    assert "/login/?next=%2F%3Fq%3D" in str(notice.get_attribute("href"))
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/login/?next=/agents/")


def _meter(*load: Any) -> Meter:
    limit, active, queued, paused = load
    return Meter(max=limit, active=active, queued=queued, paused=paused, version=1)
