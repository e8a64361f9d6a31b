"""Whether Python and the libraries are those that were tested."""

import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import django
from django.conf import settings
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from .findings import Finding, fail, ok, warn

DISTRIBUTION = "trinity-capacity"
#: The newest Python that the constraints were tried with.
NEWEST_TESTED = (3, 13)
INSTALL = "pip install -c constraints.txt -e ."


def check_libraries(constraints: Path | None = None) -> Iterator[Finding]:
    """Python, then all direct requirements against their bounds and the tested versions."""
    try:
        own = metadata.metadata(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield warn("libraries", "Trinity itself is not installed here, so its requirements are not known", INSTALL)
        return
    yield _python(own["Requires-Python"] or "")
    yield _libraries(pins_of(constraints or Path(settings.BASE_DIR) / "constraints.txt"))


def pins_of(file: Path) -> dict[str, str]:
    """`{library: tested version}` as it holds for this Python; empty where the file isn't there."""
    lines = file.read_text().splitlines() if file.exists() else []
    pins = [Requirement(line) for line in lines if re.match(r"[A-Za-z0-9]", line)]
    return {canonicalize_name(pin.name): _version(pin) for pin in pins if pin.marker is None or pin.marker.evaluate()}


def _version(pin: Requirement) -> str:
    return next(iter(pin.specifier)).version


def _python(required: str) -> Finding:
    version = platform.python_version()
    if not SpecifierSet(required).contains(version, prereleases=True):
        return fail("python", f"Python {version}", f"Use Python {required}")
    if tuple(map(int, platform.python_version_tuple()[:2])) > NEWEST_TESTED:
        return warn("python", f"Python {version}", "Tested up to Python " + ".".join(map(str, NEWEST_TESTED)))
    return ok("python", f"Python {version}")


def _libraries(pins: dict[str, str]) -> Finding:
    needed = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    needed = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong, untested = [], []
    for one in needed:
        version = _installed(one.name)
        if version is None or not one.specifier.contains(version, prereleases=True):
            wrong.append(f"{one.name} {version or 'missing'} (needed: {one.specifier or 'any'})")
        elif (tested := pins.get(canonicalize_name(one.name), version)) != version:
            untested.append(f"{one.name} {version} (tested: {tested})")
    if wrong:
        return fail("libraries", ", ".join(wrong), INSTALL)
    if untested:
        return warn("libraries", ", ".join(untested), INSTALL)
    return ok("libraries", f"Django {django.get_version()} and {len(needed) - 1} others" + (", as tested" if pins else ""))


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
