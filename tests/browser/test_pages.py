"""Every page in Chromium: nothing for axe to find, nothing on the console, nothing wider than the window; whatever is on it."""

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests import environment
from tests.browser.ground import Ground
from tests.browser.pages import ADMIN, CROWDS, DASHBOARD, PAGES, Shown, check_axe, check_frame, check_width, open_page

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
            check_axe(page, shown)
    for width in (320, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        check_width(page)
