"""The pages as a person watches them: meters that move while tasks start and end, without a request of the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.agents.server import AgentServer
from tests.flows.submitting import submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]
WAIT_MS = 10_000

#: What the element itself shows, read from its shadow tree.
SHOWN = """meter => {
  const bar = meter.shadowRoot.querySelector('.bar');
  const filled = [...bar.querySelectorAll('.cell[data-filled]')];
  const style = filled.length ? getComputedStyle(filled[0]) : null;
  return {level: bar.dataset.level, cells: bar.querySelectorAll('.cell').length, filled: filled.length,
          pulse: style ? style.animationName : 'none', color: style ? style.backgroundColor : ''};
}"""


def sign_in(page: Page, stack: Stack, user: str = "olga") -> None:
    """Log in by the form."""
    page.goto(f"{stack.url}/login/")
    page.locator("[name=username]").fill(user)
    page.locator("[name=password]").fill(f"{user}-password")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{stack.url}/")
    page.goto(f"{stack.url}/agents/")


def meter_of(page: Page, agent: str) -> Locator:
    """The agent's meter on the page."""
    return page.locator(f'capacity-meter[agent="{agent}"]')


@pytest.fixture
def requests(page: Page) -> list[str]:
    """Every request that the page makes from now on."""
    made: list[str] = []
    page.on("request", lambda request: made.append(f"{request.method} {request.url}"))
    return made


def test_the_meter_goes_from_grey_to_red_and_back_with_no_request_of_the_page(
    stack: Stack, agent_server: AgentServer, page: Page, requests: list[str], until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=5)
    api = stack.api()
    sign_in(page, stack)
    meter = meter_of(page, agent)
    expect(meter).to_have_attribute("title", "0/5 slots", timeout=WAIT_MS)
    page.wait_for_load_state("networkidle")
    requests.clear()

    seen = [meter.evaluate(SHOWN)]
    for active in range(1, 6):
        submit(api, agent, f"hang {active}")
        expect(meter).to_have_attribute("title", f"{active}/5 slots", timeout=WAIT_MS)
        seen.append(meter.evaluate(SHOWN))
    assert [one["level"] for one in seen] == ["idle", "low", "low", "medium", "high", "full"]
    assert [one["filled"] for one in seen] == [0, 1, 2, 3, 4, 5]
    assert [one["pulse"] != "none" for one in seen] == [False] * 5 + [True]

    submit(api, agent, "waits")
    expect(meter.get_by_text("+1 waiting")).to_be_visible(timeout=WAIT_MS)
    agent_server.let_go()
    expect(meter).to_have_attribute("title", "0/5 slots", timeout=WAIT_MS)
    until(lambda: meter.evaluate(SHOWN)["level"] == "idle")
    assert requests == []


def test_a_limit_raised_in_the_admin_starts_what_waits_and_grows_the_meter(
    stack: Stack, agent_server: AgentServer, page: Page, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    api = stack.api()
    for number in range(5):
        submit(api, agent, f"hang {number}")
    sign_in(page, stack)
    watching = page.context.new_page()
    watching.goto(f"{stack.url}/agents/")
    expect(meter_of(watching, agent)).to_have_attribute("title", "1/1 slots", timeout=WAIT_MS)
    page.goto(f"{stack.url}/admin/fleet/agent/")
    row = page.locator("#result_list tbody tr", has=page.get_by_role("link", name=agent, exact=True))
    expect(row.locator("capacity-meter")).to_be_visible()
    row.locator('input[type="number"]').fill("5")
    page.get_by_role("button", name="Save").click()
    expect(meter_of(watching, agent)).to_have_attribute("title", "5/5 slots", timeout=WAIT_MS)
    assert meter_of(watching, agent).evaluate(SHOWN)["cells"] == 5
    assert agent_server.active == 5
    # The list in the admin is live as well.
    expect(page.locator(f'[data-used="{agent}"]')).to_have_text("5/5", timeout=WAIT_MS)
    agent_server.let_go()
    expect(page.locator(f'[data-used="{agent}"]')).to_have_text("0/5", timeout=WAIT_MS)


def test_a_socket_that_was_cut_is_right_again_after_reconnecting(
    stack: Stack, agent_server: AgentServer, page: Page, until: Until, console_errors: list[str]
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=4)
    api = stack.api()
    sign_in(page, stack)
    expect(meter_of(page, agent)).to_have_attribute("title", "0/4 slots", timeout=WAIT_MS)
    page.context.set_offline(True)
    stack.restart_web()
    for number in range(3):
        submit(api, agent, f"hang {number}")
    until(lambda: agent_server.active == 3)
    page.context.set_offline(False)
    expect(meter_of(page, agent)).to_have_attribute("title", "3/4 slots", timeout=40_000)
    agent_server.let_go()
    expect(meter_of(page, agent)).to_have_attribute("title", "0/4 slots", timeout=WAIT_MS)
    until(lambda: unsettled(stack, agent) == 0)
    console_errors.clear()  # the browser itself reports connections that fail


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_look_alike_in_light_and_dark(stack: Stack, agent_server: AgentServer, page: Page, scheme: Any, tmp_path: Path) -> None:
    agents = [stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=5) for _ in range(2)]
    api = stack.api()
    for number in range(7):
        submit(api, agents[0], f"hang {number}")
    page.emulate_media(color_scheme=scheme)
    sign_in(page, stack)
    expect(meter_of(page, agents[0])).to_have_attribute("title", "5/5 slots", timeout=WAIT_MS)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in background.removeprefix("rgb(").removesuffix(")").split(",")[:3]]
    assert (sum(channels) / 3 > 128) == (scheme == "light")
    page.goto(f"{stack.url}/agents/{agents[0]}/")
    expect(page.get_by_role("heading", name=agents[0])).to_be_visible()
    page.screenshot(path=tmp_path / f"agent-{scheme}.png", full_page=True)
    agent_server.let_go()
