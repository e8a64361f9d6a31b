"""Every page in Chromium: nothing for axe to find, nothing on the console, nothing wider than the window; whatever is on it."""

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests import environment
from tests.browser.ground import Ground
from tests.browser.pages import ADMIN, CROWDS, DASHBOARD, PAGES, WAIT_MS, Shown, check_axe, check_frame, check_width, open_page

LONG = bool(os.environ.get("TEST_LONG"))
WIDTHS = (360, 768, 1440)
#: Whatever the scheme is, these alone depend on it.
COLOURS = ("color-contrast", "link-in-text-block")
MODES = {
    "light": {"color_scheme": "light", "forced_colors": "none", "reduced_motion": "no-preference"},
    "dark": {"color_scheme": "dark", "forced_colors": "none", "reduced_motion": "no-preference"},
    "forced": {"color_scheme": "dark", "forced_colors": "active", "reduced_motion": "no-preference"},
    "still": {"color_scheme": "light", "forced_colors": "none", "reduced_motion": "reduce"},
}
#: Elements of a page with a thousand agents: a list is paged or drawn as far as it is seen.
MOST_ELEMENTS = 20_000

Opened = Callable[[Shown], Page]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """One seeded stack for all pages."""
    ground = Ground(environment.temporary_directory())
    yield ground
    ground.close()


@pytest.fixture(scope="module")
def windows(ground: Ground, browser: Browser) -> Iterator[Callable[[str | None], BrowserContext]]:
    """`windows(user)`: the browser's context in which they are signed in, one for all tests."""
    made: dict[str | None, BrowserContext] = {}

    def window(user: str | None) -> BrowserContext:
        if user not in made:
            made[user] = ground.window(browser, user)
        return made[user]

    yield window
    for context in made.values():
        context.close()


@pytest.fixture
def opened(ground: Ground, windows: Callable[[str | None], BrowserContext]) -> Iterator[Opened]:
    """`opened(shown)`: that page, in light at 1440; a complaint on its console fails the test."""
    pages: list[Page] = []
    errors: list[str] = []

    def open_one(shown: Shown) -> Page:
        page = windows(shown.user).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type in {"error", "warning"} else None)
        page.emulate_media(**MODES["light"])
        open_page(page, ground, shown)
        if shown.status != 200:
            errors.clear()  # the browser itself reports an answer that is an error
        return page

    yield open_one
    for page in pages:
        page.close()
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize("shown", PAGES + ADMIN, ids=str)
def test_a_page_is_sound_in_light_and_dark(shown: Shown, opened: Opened) -> None:
    page = opened(shown)
    check_frame(page)
    check_axe(page, shown)
    page.emulate_media(**MODES["dark"])
    check_axe(page, shown, only=() if LONG else COLOURS)


@pytest.mark.parametrize("shown", PAGES + ADMIN + CROWDS if LONG else [DASHBOARD], ids=str)
def test_a_page_is_sound_in_every_mode_at_every_width(shown: Shown, opened: Opened) -> None:
    page = opened(shown)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for mode in MODES.values():
            page.emulate_media(**mode)
            check_frame(page)
            check_axe(page, shown, only=() if LONG or mode == MODES["light"] else COLOURS)
    for width in (320, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        check_width(page)


@pytest.mark.parametrize("shown", CROWDS if LONG else CROWDS[4:5], ids=str)
def test_a_page_of_many_agents_is_drawn_as_far_as_it_is_read(shown: Shown, opened: Opened) -> None:
    page = opened(shown)
    assert page.evaluate("() => document.querySelectorAll('*').length") < MOST_ELEMENTS
    check_frame(page)
    page.keyboard.press("/")
    if shown.path == "/":
        field = page.get_by_role("searchbox", name="Search agents")
        expect(field).to_be_focused()
        field.fill(f"{shown.user}-0042")
        expect(page.locator("tr[data-agent]")).to_have_count(1, timeout=WAIT_MS)
    check_axe(page, shown)


def test_a_session_that_is_over_is_said_with_a_way_back(ground: Ground, browser: Browser) -> None:
    with ground.window(browser, "olga") as window:
        page = window.new_page()
        open_page(page, ground, DASHBOARD)
        window.clear_cookies()
        page.get_by_role("searchbox", name="Search agents").fill("res")
        expect(page.get_by_role("alert").get_by_role("link", name="Sign in again")).to_be_visible(timeout=WAIT_MS)
        check_frame(page)
        check_axe(page, DASHBOARD)


def test_while_the_store_is_away_what_runs_is_unknown_and_what_waits_is_known(ground: Ground, opened: Opened) -> None:
    with ground.store_down():
        for path, ready in (("/", "tr[data-agent=research]"), ("/agents/", "capacity-meter"), ("/agents/research/", "capacity-meter")):
            shown = Shown("down", path, ready=ready)
            page = opened(shown)
            expect(page.locator("#unknown")).to_be_visible(timeout=WAIT_MS)
            # The socket's word is the same as the server's.
            expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
            assert page.get_by_text("Idle", exact=True).count() == 0
            if path == "/":
                expect(page.locator("#running")).to_have_text("unknown")
                expect(page.locator("#queued")).to_have_text("17")
                expect(page.locator("tr[data-agent=research] [data-cell=waiting]")).to_have_text("7")
            check_frame(page)
            check_axe(page, shown)
