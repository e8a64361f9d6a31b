"""The element alone, in a page that is not Trinity's: served by a plain server under a strict policy."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

STATIC = Path(__file__).resolve().parents[2] / "frontend" / "static"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src *; img-src data:"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>Meters</title><script type="module" src="/trinity/elements/capacity-meter.js"></script></head>
<body><main><h1>Meters</h1></main></body></html>"""

Put = Callable[..., Locator]


class PageServer(SimpleHTTPRequestHandler):
    """The static files, and at `/` an empty page that loads the element."""

    def do_GET(self) -> None:
        """Answer with the page or a file."""
        if urlsplit(self.path).path != "/":
            return super().do_GET()
        body = PAGE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(PageServer, directory=str(STATIC)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def put(page: Page, site: str) -> Put:
    """`put(active=3, max=5, …)`: a meter with these attributes (`True`: an empty one, `_` for `-`) in the page."""
    page.goto(site)

    def place(**attributes: object) -> Locator:
        named = {name.replace("_", "-"): "" if value is True else str(value) for name, value in attributes.items()}
        page.evaluate(
            """(attributes) => {
                const meter = document.createElement("capacity-meter");
                for (const [name, value] of Object.entries(attributes)) meter.setAttribute(name, value);
                document.querySelector("main").append(meter);
                return customElements.whenDefined("capacity-meter");
            }""",
            named,
        )
        return page.locator("capacity-meter").last

    return place


def filled(meter: Locator) -> list[bool]:
    """Which cells are filled, from the bottom to the top as they stand on the screen."""
    cells: list[dict[str, Any]] = meter.evaluate(
        """(meter) => [...meter.shadowRoot.querySelectorAll('[part~=cell]')].map(
            (cell) => ({filled: cell.part.contains('filled'), y: cell.getBoundingClientRect().y}))"""
    )
    return [cell["filled"] for cell in sorted(cells, key=lambda cell: -cell["y"])]


def colour(meter: Locator, part: str = "filled") -> str:
    """The background of the first such cell, once its change of colour has ended."""
    return str(
        meter.evaluate(
            """async (meter, part) => {
                const cell = meter.shadowRoot.querySelector(`[part~=${part}]`);
                await Promise.allSettled(cell.getAnimations().filter((a) => a instanceof CSSTransition).map((a) => a.finished));
                return getComputedStyle(cell).backgroundColor;
            }""",
            part,
        )
    )


def style(meter: Locator, name: str) -> str:
    """A computed style of the lowest cell."""
    return str(meter.evaluate("(m, name) => getComputedStyle(m.shadowRoot.querySelector('[part~=cell]'))[name]", name))


def bar_size(meter: Locator) -> list[int]:
    """Width and height of the bar."""
    return list(meter.evaluate("(m) => { const b = m.shadowRoot.querySelector('[part=bar]'); return [b.offsetWidth, b.offsetHeight]; }"))


def pulse(meter: Locator) -> list[str]:
    """Name, length and repetition of the animation of the lowest cell."""
    return [style(meter, f"animation{part}") for part in ("Name", "Duration", "IterationCount")]


def text(meter: Locator) -> list[str]:
    """The lines beside the bar."""
    return list(meter.evaluate("(meter) => [...meter.shadowRoot.querySelector('[part=text]').children].map((line) => line.textContent)"))


def luminance(rgb: str) -> float:
    """WCAG's relative luminance of an `rgb(…)` text."""
    channels = [int(part) / 255 for part in rgb[rgb.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


LIGHT = {"low": "rgb(21, 128, 61)", "medium": "rgb(146, 116, 0)", "high": "rgb(194, 65, 12)", "full": "rgb(185, 28, 28)"}
DARK = {"low": "rgb(74, 222, 128)", "medium": "rgb(253, 224, 71)", "high": "rgb(251, 146, 60)", "full": "rgb(248, 113, 113)"}
LEVELS = [(1, 5, "low"), (2, 5, "low"), (1, 2, "medium"), (3, 5, "medium"), (4, 5, "high"), (5, 5, "full"), (6, 5, "full")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colour_follows_the_share_of_slots_in_use(page: Page, put: Put, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    shades = LIGHT if scheme == "light" else DARK
    shown = {(active, maximum): colour(put(active=active, max=maximum)) for active, maximum, _ in LEVELS}
    assert shown == {(active, maximum): shades[level] for active, maximum, level in LEVELS}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_shade_stands_out_from_an_empty_cell_and_from_the_page(page: Page, put: Put, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    empty = colour(put(active=0, max=5), "cell")
    behind = "rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 18, 18)"
    for shade in (LIGHT if scheme == "light" else DARK).values():
        assert contrast(shade, empty) >= 3
        assert contrast(shade, behind) >= 3
    assert contrast(style(page.locator("capacity-meter"), "borderTopColor"), behind) >= 3


def test_an_idle_meter_is_grey_and_says_none_of_its_slots_is_in_use(put: Put) -> None:
    meter = put(active=0, max=5, agent="research-agent")
    assert filled(meter) == [False] * 5
    assert colour(meter, "cell") == "rgb(229, 231, 235)"
    expect(meter).to_have_attribute("aria-valuetext", "0 of 5 slots in use")


def test_cells_fill_from_the_bottom(put: Put) -> None:
    for active in range(6):
        meter = put(active=active, max=5)
        assert filled(meter) == [True] * active + [False] * (5 - active)
        expect(meter).to_have_attribute("title", f"{active}/5 slots")


def test_only_a_full_meter_pulses(put: Put) -> None:
    assert pulse(put(active=4, max=5))[0] == "none"
    assert pulse(put(active=5, max=5)) == ["capacity-pulse", "1.2s", "infinite"]
    assert pulse(put(active=5, max=5, stale=True))[0] == "none"


def test_a_full_meter_is_still_for_who_asked_for_reduced_motion(page: Page, put: Put) -> None:
    page.emulate_media(reduced_motion="reduce")
    meter = put(active=5, max=5)
    assert pulse(meter)[0] == "none"
    assert colour(meter) == LIGHT["full"]
    assert style(meter, "transitionDuration") == "0s"


def test_over_the_limit_the_bar_is_full_and_the_text_says_so(put: Put) -> None:
    meter = put(active=6, max=5, agent="research-agent")
    assert filled(meter) == [True] * 5
    assert text(meter) == ["6 of 5, over limit"]
    expect(meter).to_have_attribute("title", "6/5 slots")
    expect(meter).to_have_attribute("aria-valuenow", "5")
    expect(meter).to_have_attribute("aria-valuetext", "6 of 5 slots in use, over limit")


def test_what_waits_is_text_beside_the_bar_and_no_part_of_it(put: Put) -> None:
    meter = put(active=3, max=5, queued=7)
    assert text(meter) == ["+7 waiting"]
    assert filled(meter) == [True] * 3 + [False] * 2


def test_a_screen_reader_gets_a_named_meter_with_its_value(page: Page, put: Put) -> None:
    meter = put(agent="research-agent", active=3, max=5, queued=7, paused=True)
    expect(page.get_by_role("meter", name="research-agent slots")).to_be_visible()
    for name, value in {"min": "0", "max": "5", "now": "3", "text": "3 of 5 slots in use, 7 waiting, paused"}.items():
        expect(meter).to_have_attribute(f"aria-value{name}", value)
    assert "paused" in text(meter)


def test_the_name_that_a_page_gives_is_kept(page: Page, put: Put) -> None:
    meter = put(agent="a", active=1, max=2, aria_label="Load")
    meter.evaluate("(m) => { m.agent = 'b'; m.active = null; m.active = 2; }")
    expect(page.get_by_role("meter", name="Load")).to_be_visible()


def test_an_unknown_value_is_not_drawn_as_idle(page: Page, put: Put) -> None:
    meter = put(agent="research-agent", active="unknown", max=5)
    assert meter.evaluate("(m) => m.active") is None
    assert meter.get_attribute("aria-valuenow") is None
    expect(page.get_by_role("img", name="research-agent: slots in use unknown")).to_be_visible()
    assert text(meter) == ["unknown"]
    assert style(meter, "borderTopStyle") == "dashed"
    meter.evaluate("(m) => { m.active = 2; }")
    expect(page.get_by_role("meter", name="research-agent slots")).to_have_attribute("aria-valuenow", "2")


def test_a_stale_meter_is_hatched_and_says_since_when(page: Page, put: Put) -> None:
    at = page.evaluate("new Date(2026, 0, 2, 12, 3, 5).toISOString()")
    meter = put(active=2, max=5, stale=True, as_of=at)
    assert text(meter) == ["as of 12:03:05"]
    assert "repeating-linear-gradient" in meter.evaluate(
        "(m) => getComputedStyle(m.shadowRoot.querySelector('[part=bar]'), '::after').backgroundImage"
    )
    expect(meter).to_have_attribute("aria-valuetext", "2 of 5 slots in use, as of 12:03:05")


@pytest.mark.parametrize(
    ("attributes", "states"),
    [
        ({"active": 2, "max": 5}, []),
        ({"active": 5, "max": 5}, ["full"]),
        ({"active": 6, "max": 5}, ["full", "over"]),
        ({"active": 1, "max": 5, "paused": True}, ["paused"]),
        ({"active": "unknown", "max": 5, "stale": True}, ["stale", "unknown"]),
    ],
)
def test_a_page_can_style_the_states(put: Put, attributes: dict[str, object], states: list[str]) -> None:
    meter = put(**attributes)
    assert meter.evaluate("(m) => ['full', 'over', 'paused', 'stale', 'unknown'].filter((s) => m.matches(`:state(${s})`))") == states


def test_sizes_come_from_attributes_and_give_way_to_the_pages_tokens(put: Put) -> None:
    small = put(active=1, max=3)
    assert small.evaluate("(m) => [m.offsetWidth, m.offsetHeight]") == [12, 36]
    meter = put(active=1, max=3, height=48, width=6)
    assert bar_size(meter) == [6, 48]
    for name, value in {"height": "28px", "width": "10px"}.items():
        meter.evaluate("(m, [name, value]) => m.style.setProperty(name, value)", [f"--capacity-meter-{name}", value])
    assert bar_size(meter) == [10, 28]


def test_height_zero_stretches_with_its_row(put: Put) -> None:
    meter = put(active=1, max=3, height=0)
    meter.evaluate("(m) => { m.parentElement.style.display = 'flex'; m.parentElement.style.height = '200px'; }")
    assert bar_size(meter) == [12, 200]


def test_cells_stand_one_pixel_apart_and_change_colour_in_300_ms(put: Put) -> None:
    meter = put(active=1, max=10)
    assert meter.evaluate("(m) => getComputedStyle(m.shadowRoot.querySelector('[part=bar]')).rowGap") == "1px"
    assert style(meter, "transitionDuration").split(", ")[0] == "0.3s"


# Without `agent`: with one, and a server and a ticket that look usable, it would rightly connect.
PROPERTIES = ["active", "max", "height", "width", "queued", "version", "asOf", "paused", "stale", "count", "src", "ticket"]
WRONG = ["", "abc", "-4", "1e99", "NaN", "null", "3.7", "💥", "999999999"]


def test_wrong_attributes_never_throw(put: Put) -> None:
    for value in WRONG:
        meter = put(active=value, max=value, height=value, width=value, queued=value, version=value, as_of=value, stale=True, src=value)
        meter.evaluate("(m, [names, value]) => { for (const name of names) m[name] = value; }", [PROPERTIES, value])
        assert 1 <= len(filled(meter)) <= 64
        meter.evaluate("(m) => m.remove()")


def test_wrong_properties_never_throw(put: Put) -> None:
    meter = put(active=1, max=3)
    meter.evaluate(
        """(m, names) => {
            for (const wrong of [undefined, null, Symbol('s'), {}, [], () => 1, NaN, -Infinity, 10n, true])
                for (const name of names) m[name] = wrong;
            m.src = '';
            for (const wrong of [undefined, null, Symbol('s'), {}, 3]) m.agent = wrong;
            for (const wrong of [undefined, null, 3, 'x', {active: 'x', max: -1}]) m.show(wrong);
        }""",
        PROPERTIES,
    )


def test_properties_mirror_attributes_and_may_be_set_before_the_element_is_known(page: Page, put: Put) -> None:
    meter = put(active=3, max=5, queued=7, paused=True)
    values = meter.evaluate("(m) => [m.active, m.max, m.height, m.width, m.queued, m.paused, m.stale, m.agent]")
    assert values == [3, 5, 36, 12, 7, True, False, ""]
    meter.evaluate("(m) => { m.active = 4; m.paused = false; m.stale = true; }")
    assert [meter.get_attribute(name) for name in ("active", "paused", "stale")] == ["4", None, ""]
    early = page.evaluate(
        """async () => {
            const frame = document.implementation.createHTMLDocument();
            const early = frame.createElement('capacity-meter');
            Object.assign(early, {active: 2, max: 4});
            document.body.append(early);
            return [early.getAttribute('active'), early.title];
        }"""
    )
    assert early == ["2", "2/4 slots"]


def test_one_event_tells_of_all_that_changed_at_once(put: Put) -> None:
    meter = put(agent="a", active=1, max=3)
    told = meter.evaluate(
        """async (m) => {
            const told = [];
            document.addEventListener('capacity-change', (event) => told.push(event.detail));
            m.show({active: 2, max: 5, queued: 1, paused: false, version: 9});
            m.show({active: 2, max: 5, queued: 1, paused: false, version: 10});
            await new Promise((done) => setTimeout(done));
            return told;
        }"""
    )
    assert told == [{"agent": "a", "active": 2, "max": 5, "queued": 1, "version": 10}]


def test_forced_colours_keep_filled_and_empty_apart(page: Page, put: Put) -> None:
    page.emulate_media(forced_colors="active")
    meter = put(active=2, max=5)
    cells = meter.evaluate("(m) => [...m.shadowRoot.querySelectorAll('[part~=cell]')].map((c) => getComputedStyle(c).backgroundColor)")
    assert len(set(cells[:2])) == 1
    assert len(set(cells[2:])) == 1
    assert contrast(cells[0], cells[2]) >= 3


def test_without_scripts_the_native_meter_inside_is_shown(page: Page, put: Put) -> None:
    put(active=1, max=3)
    page.evaluate("document.querySelector('capacity-meter').innerHTML = '<meter min=0 max=3 value=1>1 of 3 slots in use</meter>'")
    expect(page.locator("capacity-meter meter")).to_be_hidden()
    page.evaluate("() => { const m = document.createElement('meter'); m.id = 'plain'; document.querySelector('main').append(m); }")
    expect(page.locator("#plain")).to_be_visible()


# -- By itself -------------------------------------------------------------------------------------------------------
@dataclass
class Sockets:
    """A stand-in for the server's side of `/ws/capacity/`: what was asked, and the sockets to speak on."""

    url: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    sockets: list[ServerConnection] = field(default_factory=list)
    refuse_with: int | None = None

    def __call__(self, socket: ServerConnection) -> None:
        """Take a browser's socket and answer with a snapshot."""
        assert socket.request is not None
        parts = urlsplit(socket.request.path)
        assert parts.path == "/ws/capacity/"
        self.asked.append(parse_qs(parts.query))
        if self.refuse_with:
            socket.close(self.refuse_with)
            return
        self.say(socket, "snapshot", active=1, version=1)
        self.sockets.append(socket)
        try:
            for _ in socket:
                pass
        except ConnectionClosed:
            pass

    @staticmethod
    def say(socket: ServerConnection, kind: str, *, active: int | None, version: int, queued: int = 0) -> None:
        """Send one frame about `a`."""
        value = {"max": 4, "active": active, "queued": queued, "paused": False, "version": version}
        socket.send(json.dumps({"type": kind, "server_time": "2026-01-02T12:03:05Z", "agents": {"a": value}}))


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """The stand-in, listening."""
    handler = Sockets()
    server: Server = serve(handler, "127.0.0.1", 0)
    handler.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()


def test_with_a_server_and_a_ticket_it_follows_its_agent(put: Put, sockets: Sockets) -> None:
    meter = put(agent="a", src=sockets.url)
    meter.evaluate("(m) => { m.ticket = 'one-time'; }")
    expect(meter).to_have_attribute("title", "1/4 slots")
    assert sockets.asked == [{"agent": ["a"], "ticket": ["one-time"]}]
    sockets.say(sockets.sockets[0], "delta", active=3, version=5, queued=2)
    expect(meter).to_have_attribute("aria-valuetext", "3 of 4 slots in use, 2 waiting")
    sockets.say(sockets.sockets[0], "delta", active=2, version=4)
    sockets.say(sockets.sockets[0], "delta", active=None, version=6)
    expect(meter).to_have_attribute("title", "slots unknown")


def test_before_its_first_values_it_shows_no_slot_of_three_in_use(put: Put, sockets: Sockets) -> None:
    sockets.refuse_with = 4403
    meter = put(agent="a", src=sockets.url)
    meter.evaluate("(m) => { m.ticket = 'one-time'; }")
    expect(meter).to_have_attribute("title", "0/3 slots")


def test_a_ticket_is_used_once_and_a_function_is_asked_for_each_connection(
    page: Page, put: Put, sockets: Sockets, until: Callable[..., Any]
) -> None:
    page.evaluate("() => { Math.random = () => 0; }")
    meter = put(agent="a", src=sockets.url)
    meter.evaluate("(m) => { let n = 0; m.ticket = async () => `ticket-${++n}`; }")
    until(lambda: len(sockets.sockets) == 1)
    sockets.sockets[0].close(1012)
    # Playwright's own event loop has to turn while the page reconnects.
    expect(meter).to_have_attribute("title", "1/4 slots")
    until(lambda: len(sockets.sockets) == 2)
    assert [asked["ticket"] for asked in sockets.asked] == [["ticket-1"], ["ticket-2"]]


def test_a_meter_taken_out_of_the_page_closes_its_socket(put: Put, sockets: Sockets, until: Callable[..., Any]) -> None:
    meter = put(agent="a", src=sockets.url)
    meter.evaluate("(m) => { m.ticket = 'one-time'; }")
    until(lambda: len(sockets.sockets) == 1)
    meter.evaluate("(m) => m.remove()")
    until(lambda: sockets.sockets[0].close_code == 1000)


def test_25_seconds_of_silence_make_it_stale_and_a_frame_makes_it_fresh(
    page: Page, put: Put, sockets: Sockets, until: Callable[..., Any]
) -> None:
    page.clock.install()
    meter = put(agent="a", src=sockets.url)
    meter.evaluate("(m) => { m.ticket = () => 'again'; }")
    until(lambda: len(sockets.sockets) == 1)
    expect(meter).to_have_attribute("title", "1/4 slots")
    sockets.refuse_with = 4408
    page.clock.run_for(24_000)
    assert meter.get_attribute("stale") is None
    page.clock.run_for(2_000)
    expect(meter).to_have_attribute("stale", "")
    assert text(meter)[-1].startswith("as of ")
    sockets.refuse_with = None
    page.clock.run_for(40_000)
    expect(meter).not_to_have_attribute("stale", "")
    assert len(sockets.sockets) == 2
