"""The agent's past under other limits, as a person asks for it on its page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.server import AgentServer
from tests.flows.submitting import submit, unsettled
from tests.stack import Stack

from .test_live import WAIT_MS, sign_in


def test_a_slider_tells_what_more_slots_would_have_done_with_one_request(
    stack: Stack, agent_server: AgentServer, page: Page, until: Callable[..., Any], tmp_path: Path
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=1)
    sign_in(page, stack)
    page.goto(f"{stack.url}/agents/{agent}/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/what-if" in request.url and "/api/" in request.url else None)
    part = page.locator("#what-if")
    part.locator("summary").click()
    expect(part.get_by_text("Nothing arrived in the last 24 hours")).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("#what-if-found")).to_be_hidden()

    for number in range(6):
        submit(stack.api(), agent, f"sleep=0.3 {number}")
    until(lambda: unsettled(stack, agent) == 0, seconds=60)
    part.get_by_label("7 days").check()
    slider = page.get_by_role("slider", name="Slots")
    expect(slider).to_have_attribute("aria-valuetext", "1 slot", timeout=WAIT_MS)
    waits = part.locator("tr", has_text="95 % within").locator("td")
    assert waits.first.inner_text() != "0.0 s"
    slider.focus()
    page.keyboard.press("End")
    expect(waits.first).to_have_text("0.0 s")
    expect(page.locator("#what-if-number")).to_have_text("10")
    expect(page.locator("#what-if-said")).to_have_text("With 10 slots: 95 % wait 0.0 s at most, 0 refused.", timeout=WAIT_MS)
    assert len(asked) == 2
    for scheme in ("light", "dark"):
        for width in (1440, 360):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            part.screenshot(path=tmp_path / f"what-if-{scheme}-{width}.png")
