"""The pages of executions in a real browser: what many are done by, and a run watched to its end across a lost connection."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from runtime import demo
from tests.agents.server import AgentServer
from tests.flows.submitting import execution, submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]
WAIT_MS = 20_000
TALKER = {"kind": "command", "argv": [sys.executable, str(Path(demo.__file__).with_name("agent.py"))]}
#: The numbers of the entries shown, in their order.
SHOWN = "() => [...document.querySelectorAll('.event')].map(row => Number(row.dataset.seq))"


@pytest.fixture
def opened(stack: Stack, page: Page) -> Callable[..., Page]:
    """`opened(path)`: that page, signed in as the owner, or as `user`."""

    def open_page(path: str, user: str = "olga") -> Page:
        page.goto(f"{stack.url}/login/?next={path}")
        page.locator("[name=username]").fill(user)
        page.locator("[name=password]").fill(f"{user}-password")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"**{path}")
        return page

    return open_page


def test_all_that_match_are_cancelled_and_retried_with_their_number_in_the_dialog_and_new_ones_are_told_of(
    stack: Stack, agent_server: AgentServer, opened: Callable[..., Page], until: Until
) -> None:
    runtime = {"kind": "http", "url": agent_server.url}
    agent, other = stack.make_agent(runtime=runtime, limit=1), stack.make_agent(runtime=runtime, limit=1)
    api = stack.api()
    made = [submit(api, agent, f"hang <b>{number}</b>")["execution_id"] for number in range(4)]
    stays = submit(api, other, "hang")["execution_id"]
    until(lambda: agent_server.active == 2)
    page = opened("/executions/")
    page.get_by_label("Agent", exact=True).fill(agent)
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url(f"**/executions/?agent={agent}")
    expect(page.locator("[data-execution]")).to_have_count(4)
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    page.get_by_role("button", name="Cancel all that match").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Cancel 4 executions?")).to_be_visible(timeout=WAIT_MS)
    expect(dialog.get_by_text("3 wait and never run; 1 run")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert unsettled(stack, agent) == 4
    page.get_by_role("button", name="Cancel all that match").click()
    dialog.get_by_role("button", name="Cancel 4 executions").click()
    expect(page.locator("#said")).to_contain_text("3 executions cancelled, 1 being stopped", timeout=WAIT_MS)
    for one in made:
        expect(page.locator(f"#row-{one} .badge")).to_have_text("cancelled", timeout=WAIT_MS)
    assert execution(api, stays)["status"] == "running"
    # What comes now is told of, and comes into the list when that is asked for.
    submit(api, agent, "hang once more")
    hint = page.get_by_role("button", name="1 new: show")
    hint.click(timeout=WAIT_MS)
    expect(page.locator("[data-execution]")).to_have_count(5)
    page.get_by_role("button", name="Retry all that match").click()
    dialog.get_by_role("button", name="Retry 4 executions").click(timeout=WAIT_MS)
    expect(page.locator("#said")).to_contain_text("4 executions submitted anew", timeout=WAIT_MS)
    assert {row["retry_of"] for row in api.get(f"/api/agents/{agent}/executions/?status=queued").json()["results"]} == set(made)
    assert api.post("/api/executions/cancel/", json={"agent": agent}).status_code == 200
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) + unsettled(stack, other) == 0)


def test_a_run_is_watched_to_its_end_across_a_lost_connection_without_a_gap(
    stack: Stack, opened: Callable[..., Page], console_errors: list[str]
) -> None:
    agent, api = stack.make_agent(runtime=TALKER, limit=1), stack.api(stack.superuser_key)
    made = submit(api, agent, "work for 12 seconds <i>on it</i>")["execution_id"]
    page = opened(f"/executions/{made}/", "root")
    frames: list[str] = []
    page.on("websocket", lambda socket: frames.append(socket.url))
    line = page.locator(".events__line")
    expect(line).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    expect(page.locator(".event").nth(2)).to_be_attached(timeout=WAIT_MS)
    expect(page.locator("#work .badge").first).to_have_text("running")
    page.context.set_offline(True)
    stack.restart_web()
    page.context.set_offline(False)
    expect(line).to_have_attribute("data-state", "ended", timeout=40_000)
    assert page.evaluate(SHOWN) == list(range(1, 25))
    assert any("after=0" not in url for url in frames if "/ws/executions/" in url), frames
    expect(page.locator("#work .badge").first).to_have_text("succeeded", timeout=WAIT_MS)
    expect(page.locator("#response")).to_contain_text("words", timeout=WAIT_MS)
    expect(page.locator("#message")).to_have_text("work for 12 seconds <i>on it</i>")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("#said")).to_contain_text("Submitted anew", timeout=WAIT_MS)
    retried = page.locator(".execution__retry a")
    retried.click(timeout=WAIT_MS)
    expect(line).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the execution").click()
    expect(line).to_have_attribute("data-state", "ended", timeout=WAIT_MS)
    expect(page.locator("#work .badge").first).to_have_text("cancelled", timeout=WAIT_MS)
    # A page that is never given a socket asks over HTTP, and misses nothing either.
    page.route_web_socket("**/ws/executions/**", lambda socket: socket.close())
    made = submit(api, agent, "work for 2 seconds")["execution_id"]
    page.goto(f"{stack.url}/executions/{made}/")
    expect(line).to_have_attribute("data-state", "ended", timeout=40_000)
    assert page.evaluate(SHOWN) == [1, 2, 3, 4]
    console_errors.clear()  # the browser itself reports connections that fail
