"""The pages as a person watches them: meters that move while tasks start and end, without a request of the page."""

import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Response, WebSocketRoute, expect

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
    page.goto(f"{stack.url}/login/?next=/agents/")
    page.locator("[name=username]").fill(user)
    page.locator("[name=password]").fill(f"{user}-password")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{stack.url}/agents/")


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
    stack: Stack, agent_server: AgentServer, page: Page, requests: list[str], until: Until, console_errors: list[str]
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=4)
    api = stack.api()
    sign_in(page, stack)
    expect(meter_of(page, agent)).to_have_attribute("title", "0/4 slots", timeout=WAIT_MS)
    requests.clear()
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
    # It came back by itself: nothing was loaded again. What it may have asked for meanwhile is the meters.
    assert {request for request in requests if "/api/agents/slots" not in request} == set()
    console_errors.clear()  # the browser itself reports connections that fail


class Sockets:
    """What stands between a page and its websockets: lets them through, or not."""

    def __init__(self, page: Page) -> None:
        """Before the page is loaded."""
        self.open = True
        self._through: list[WebSocketRoute] = []
        page.route_web_socket("**/ws/capacity/**", self._route)

    def _route(self, socket: WebSocketRoute) -> None:
        if self.open:
            socket.connect_to_server()
            self._through.append(socket)
        else:
            socket.close(code=1011)

    def cut(self) -> None:
        """End those that there are, and let no other through."""
        self.open = False
        while self._through:
            self._through.pop().close(code=1011)


@pytest.fixture
def polls(page: Page) -> list[tuple[str | None, int]]:
    """The tag sent and the status received of each time the page asked for the meters."""
    made: list[tuple[str | None, int]] = []

    def note(response: Response) -> None:
        if urlsplit(response.url).path == "/api/agents/slots" and response.request.method == "GET":
            made.append((response.request.headers.get("if-none-match"), response.status))

    page.on("response", note)
    return made


def hide(page: Page, hidden: bool) -> None:
    """Have the page take its tab for hidden, or for seen again."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_while_no_socket_can_be_had_the_page_asks_and_as_soon_as_there_is_one_it_stops(
    stack: Stack,
    agent_server: AgentServer,
    page: Page,
    polls: list[tuple[str | None, int]],
    console_errors: list[str],
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=3)
    api, sockets = stack.api(), Sockets(page)
    sockets.open = False
    page.clock.install()
    page.add_init_script("Math.random = () => 0.1")
    meter, live = meter_of(page, agent), page.locator("#live")

    def pass_until(shown: Callable[[], None]) -> None:
        """Let five seconds after five seconds pass for the page until it shows what it should."""
        for _ in range(8):
            page.clock.run_for(5_000)
            try:
                return shown()
            except AssertionError:
                continue
        return shown()

    def shows(title: str) -> Callable[[], None]:
        return lambda: expect(meter).to_have_attribute("title", title, timeout=2_000)

    sign_in(page, stack)
    pass_until(lambda: expect(live).to_have_text("Every 5 seconds", timeout=2_000))
    submit(api, agent, "hang 1")
    pass_until(shows("1/3 slots"))
    polls.clear()
    pass_until(lambda: expect_polls(page, polls, least=2))
    assert all(tag for tag, _ in polls)
    assert 304 in {status for _, status in polls}

    # The server can't tell: unknown, not idle.
    page.route("**/api/agents/slots", lambda route: route.fulfill(status=503, body="{}"))
    pass_until(shows("slots unknown"))
    page.unroute("**/api/agents/slots")
    pass_until(shows("1/3 slots"))

    # A hidden tab asks for nothing, and is right when it is seen again.
    hide(page, True)
    polls.clear()
    page.clock.run_for(20_000)
    submit(api, agent, "hang 2")
    assert polls == []
    hide(page, False)
    expect(meter).to_have_attribute("title", "2/3 slots", timeout=WAIT_MS)

    # With a socket it asks no more.
    sockets.open = True
    pass_until(lambda: expect(live).to_have_text("Live", timeout=2_000))
    polls.clear()
    submit(api, agent, "hang 3")
    expect(meter).to_have_attribute("title", "3/3 slots", timeout=WAIT_MS)
    page.clock.run_for(11_000)
    expect(live).to_have_text("Live")
    assert polls == []

    # The session ends: it says so, asks no more, and leads back here.
    sockets.cut()
    page.context.clear_cookies()
    pass_until(lambda: expect(live).to_have_text("Signed out: sign in", timeout=2_000))
    expect(live.get_by_role("link", name="sign in")).to_have_attribute("href", "/login/?next=%2Fagents%2F")
    polls.clear()
    page.clock.run_for(20_000)
    assert polls == []
    agent_server.let_go()
    console_errors.clear()  # the browser itself reports a 401 and a 503


def expect_polls(page: Page, polls: list[tuple[str | None, int]], *, least: int) -> None:
    """Raise unless the page asked so often; its answers are heard of while it is looked at."""
    page.evaluate("0")
    assert len(polls) >= least


class OtherServer(SimpleHTTPRequestHandler):
    """Another site: a bare page, and its way to hand on tickets."""

    stack: Stack

    def do_GET(self) -> None:
        """The page under a strict policy, or a ticket."""
        if self.path == "/ticket":
            return self._answer(self.stack.api().post("/api/ws-ticket", json={}).text, "application/json")
        return self._answer(OTHER_PAGE.replace("TRINITY", self.stack.url), "text/html")

    def _answer(self, text: str, kind: str) -> None:
        url = self.stack.url
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        policy = f"default-src 'none'; script-src {url}; connect-src 'self' {url} {url.replace('http', 'ws', 1)}; img-src data:"
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


OTHER_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Our agents</title><link rel="icon" href="data:,">
<script type="module" src="TRINITY/static/trinity/elements/capacity-meter.js"></script><main><h1>Our agents</h1></main></html>"""


@pytest.fixture
def other_site(stack: Stack) -> Iterator[str]:
    """The address of the other site's page."""
    server = ThreadingHTTPServer(("127.0.0.1", stack.other_port), type("Bound", (OtherServer,), {"stack": stack}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{stack.other_port}/"
    server.shutdown()
    server.server_close()


def test_a_bare_page_of_another_site_follows_an_agent_by_tickets_and_by_asking_where_no_socket_opens(
    stack: Stack, agent_server: AgentServer, page: Page, polls: list[tuple[str | None, int]], other_site: str, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=2)
    api, sockets = stack.api(), Sockets(page)
    token = api.post("/api/token/", json={"username": "olga", "password": "olga-password"}).json()["access"]
    page.add_init_script("Math.random = () => 0.5")
    page.goto(other_site)
    page.evaluate(
        """([src, agent, token]) => {
            const meter = Object.assign(document.createElement('capacity-meter'), {src, agent, token});
            meter.ticket = async () => (await (await fetch('/ticket')).json()).ticket;
            document.querySelector('main').append(meter);
        }""",
        [stack.url, agent, token],
    )
    expect(meter_of(page, agent)).to_have_attribute("title", "0/2 slots", timeout=WAIT_MS)
    submit(api, agent, "hang 1")
    expect(meter_of(page, agent)).to_have_attribute("title", "1/2 slots", timeout=WAIT_MS)
    assert page.get_by_role("meter", name=f"{agent} slots").is_visible()
    assert polls == []
    sockets.cut()
    submit(api, agent, "hang 2")
    expect(meter_of(page, agent)).to_have_attribute("title", "2/2 slots", timeout=WAIT_MS)
    assert polls != []
    agent_server.let_go()
    until(lambda: unsettled(stack, agent) == 0)


def test_without_scripts_pages_and_admin_tell_the_load_by_native_meters(
    stack: Stack, agent_server: AgentServer, browser: Browser, until: Until
) -> None:
    agent = stack.make_agent(runtime={"kind": "http", "url": agent_server.url}, limit=4)
    submit(stack.api(), agent, "hang 1")
    until(lambda: agent_server.active == 1)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    sign_in(page, stack)
    for path in ("/agents/", "/admin/fleet/agent/"):
        page.goto(f"{stack.url}{path}?q={agent}")
        native = page.locator(f'capacity-meter[agent="{agent}"] meter')
        expect(native).to_be_visible()
        assert native.evaluate("(meter) => [meter.value, meter.max]") == [1, 4]
        expect(meter_of(page, agent)).to_contain_text("1/4")
    context.close()
    agent_server.let_go()


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
