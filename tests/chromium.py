"""Finding a Chromium."""

import os
import shutil
from pathlib import Path

HOW_TO_GET_ONE = "No Chromium: install the chromium package, or name one in CHROMIUM, or run `playwright install chromium`"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run"]


def installed_chromium() -> str | None:
    """The one named by `CHROMIUM`, else the first on PATH."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


def chromium(own: str) -> str | None:
    """The program to start: an installed one before Playwright's `own`; None where there is none."""
    return installed_chromium() or (own if Path(own).exists() else None)
