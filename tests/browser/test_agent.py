"""One agent's page in a real browser: every control of it, by mouse and by keyboard, and how it is renewed."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.agents.server import AgentServer
from tests.flows.submitting import execution, submit, unsettled
from tests.stack import Stack

Until = Callable[..., Any]
WAIT_MS = 15_000


@pytest.fixture
def api(stack: Stack) -> httpx.Client:
    """The owner's client."""
    return stack.api()


@pytest.fixture
def opened(stack: Stack, page: Page) -> Callable[[str], Page]:
    """`opened(agent)`: the agent's page, signed in as its owner, and live."""

    def open_page(agent: str) -> Page:
        page.goto(f"{stack.url}/login/?next=/agents/{agent}/")
        page.locator("[name=username]").fill("olga")
        page.locator("[name=password]").fill("olga-password")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"**/agents/{agent}/")
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
        return page

    return open_page


def capacity(api: httpx.Client, agent: str) -> dict[str, Any]:
    """The agent's capacity as the API shows it."""
    return api.get(f"/api/agents/{agent}/capacity").json()


def test_the_limit_is_stepped_held_for_a_time_and_ended_early_by_keyboard_alone_and_never_written_over_another(
    stack: Stack, agent_server: AgentServer, opened: Callable[[str], Page], api: httpx.Client, console_errors: list[str]
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3)
    page = opened(agent)
    number, said = page.locator("#limit-number"), page.locator("#said")
    page.get_by_role("button", name="One less").focus()
    page.keyboard.press("Tab")
    expect(number).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # one more
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # from "for good" to "for an hour"
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(page.locator("#limit-save")).to_be_focused()
    page.keyboard.press("Enter")
    expect(said).to_contain_text("The limit is 4 until", timeout=WAIT_MS)
    now = capacity(api, agent)
    assert (now["max_parallel_tasks"], now["base_max_parallel_tasks"], now["limited_by"]) == (4, 3, "override")
    expect(page.locator("#limit-save")).to_be_focused()
    page.locator("#end-override").focus()
    page.keyboard.press("Enter")
    expect(said).to_have_text("The limit is 3 again.", timeout=WAIT_MS)
    assert capacity(api, agent)["override_until"] is None
    expect(page.locator("#end-override")).to_have_count(0)

    # Somebody else is quicker: what was typed stays, and isn't written.
    number.fill("7")
    assert api.put(f"/api/agents/{agent}/capacity", json={"max_parallel_tasks": 5}).is_success
    expect(page.locator("#limit-moved")).to_contain_text("the limit is 5 now", timeout=WAIT_MS)
    expect(number).to_have_value("7")
    number.press("Enter")
    expect(said).to_contain_text("Not written", timeout=WAIT_MS)
    expect(number).to_have_value("5")
    assert capacity(api, agent)["max_parallel_tasks"] == 5
    console_errors.clear()  # the browser itself reports the 412

    page.locator("#pause").focus()
    page.keyboard.press("Space")
    expect(page.locator("#pause")).to_have_text("Resume the agent", timeout=WAIT_MS)
    expect(page.locator("#pause")).to_be_focused()
    expect(page.locator("#health")).to_have_text("Paused")


def test_a_slot_is_released_by_force_after_its_warning_and_the_line_is_cleared_by_its_count(
    stack: Stack, agent_server: AgentServer, opened: Callable[[str], Page], api: httpx.Client, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    held = [submit(api, agent, f"hang {number} deaf=3")["execution_id"] for number in range(2)]
    waiting = [submit(api, agent, f"waits {number}")["execution_id"] for number in range(3)]
    until(lambda: agent_server.active == 2)
    page = opened(agent)
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator(f"#cancel-{waiting[2]}").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

    page.locator("#clear").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text(f"Cancel 3 waiting executions of {agent}?")
    expect(dialog.get_by_role("button", name="Keep them")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#clear")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Cancel 3 waiting executions").click()
    expect(page.locator("#said")).to_have_text("3 executions cancelled.", timeout=WAIT_MS)
    expect(page.locator("#backlog")).to_contain_text("Nothing waits.")
    assert {execution(api, one)["status"] for one in waiting} == {"cancelled"}

    page.locator(f"#release-{held[0]}").click()
    dialog.get_by_label("At once, by force").check()
    expect(dialog).to_contain_text("more may run than the limit allows")
    dialog.get_by_role("button", name="Release the slot").click()
    expect(page.locator("#said")).to_contain_text("The limit may be exceeded", timeout=WAIT_MS)
    expect(page.locator(f"#release-{held[0]}")).to_have_count(0, timeout=WAIT_MS)
    assert execution(api, held[0])["error_code"] == "lease_lost"
    page.locator(f"#cancel-{held[1]}").click()
    dialog.get_by_role("button", name="Cancel the execution").click()
    until(lambda: execution(api, held[1])["status"] == "cancelled")
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)


def test_a_task_is_submitted_once_whatever_fails_or_is_pressed_twice_and_followed_to_its_end(
    stack: Stack, agent_server: AgentServer, opened: Callable[[str], Page], console_errors: list[str]
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    page = opened(agent)
    keys: list[str] = []

    def lose_the_first_answer(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.fetch()  # it arrives, and its answer is lost
            route.abort()
        else:
            route.continue_()

    page.route(f"**/api/agents/{agent}/task", lose_the_first_answer)
    page.locator("#submit-message").fill("sleep=1 once <b>only</b>")
    page.locator("#submit-more summary").click()
    page.locator("#submit-metadata").fill("{not json")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#submit-error")).to_have_text("The metadata is no JSON.")
    expect(page.locator("#submit-metadata")).to_be_focused()
    page.locator("#submit-metadata").fill('{"order": 7}')
    page.locator("#submit-priority").fill("8")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#said")).to_contain_text("can't be reached", timeout=WAIT_MS)
    expect(page.locator("#submit-message")).to_have_value("sleep=1 once <b>only</b>")
    page.get_by_role("button", name="Submit").dblclick()
    expect(page.locator("#task-status")).to_have_text("succeeded", timeout=WAIT_MS)
    expect(page.locator("#task-output")).to_have_text("done: sleep=1 once <b>only</b>")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    rows = stack.sql("SELECT priority, metadata FROM backlog_execution WHERE agent_name = %s", agent)
    assert [row["priority"] for row in rows] == [8]
    assert "7" in str(rows[0]["metadata"])

    page.locator("#submit-message").fill("another")
    page.locator("#submit-message").press("Control+Enter")
    expect(page.locator("#task-output")).to_have_text("done: another", timeout=WAIT_MS)
    assert len(set(keys)) == 2
    console_errors.clear()  # the browser itself reports the request that was lost


def test_a_renewal_keeps_what_is_open_focused_and_typed_comes_once_for_a_burst_and_says_when_the_session_is_over(
    stack: Stack, agent_server: AgentServer, opened: Callable[[str], Page], api: httpx.Client, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    held = submit(api, agent, "hang on")["execution_id"]
    until(lambda: agent_server.active == 1)
    page = opened(agent)
    renewals: list[str] = []
    page.on("request", lambda request: renewals.append(request.url) if "/parts/" in request.url else None)
    page.locator("#changes summary").click()
    page.locator("#submit-message").fill("half a thought")
    page.locator(f"#cancel-{held}").focus()
    for number in range(15):
        submit(api, agent, f"waits {number}")
    expect(page.locator("#backlog-heading")).to_contain_text("15 waiting", timeout=WAIT_MS)
    assert 1 <= len(renewals) <= 8
    expect(page.locator("#changes")).to_have_attribute("open", "")
    expect(page.locator("#submit-message")).to_have_value("half a thought")
    expect(page.locator(f"#cancel-{held}")).to_be_focused()

    page.context.clear_cookies()
    submit(api, agent, "one more")
    expect(page.locator("#signed-out")).to_be_visible(timeout=WAIT_MS)
    assert page.locator("#signed-out a").get_attribute("href") == f"/login/?next=%2Fagents%2F{agent}%2F"
    expect(page.locator("#submit-message")).to_have_value("half a thought")
    api.post(f"/api/agents/{agent}/queue/clear/")
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)
