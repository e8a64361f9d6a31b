"""Documents that follow from the code. `make docs` writes them; a test tells when they are out of date."""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

ROOT = Path(__file__).resolve().parent.parent.parent
ERRORS = ROOT / "docs" / "errors.md"
CONTRACT = ROOT / "docs" / "openapi.json"
PACKAGES = ("core", "fleet", "backlog", "capacity", "runtime", "gateway", "frontend")
#: Programs and wiring: importing them starts something.
_NOT_IMPORTED = ("management", "migrations", "demo", "supervisor", "server", "sqlite3", "tether")

_HEAD = """\
# Errors

<!-- Written by `make docs` from the classes; a test holds it complete. -->

Every error of the API is `application/problem+json` (RFC 9457): `type`, `title`, `status`, `detail`, `code`, and the members
named here. `code` is stable: programs go by it, never by the sentence. Names in braces are filled in. Every 429 and 503 says
in `Retry-After` when to come back. An error about an execution carries `execution_id`. A body with wrong fields lists them all in
`errors` (`pointer`, `code`, `detail`); `code` and `detail` are then the first one's.

| code | status | sentence | further members |
|---|---|---|---|
"""


def import_everything() -> None:
    """Load all modules, so that all their classes exist."""
    for package in PACKAGES:
        for found in walk_packages(import_module(package).__path__, f"{package}."):
            if not any(part in _NOT_IMPORTED for part in found.name.split(".")):
                import_module(found.name)


def errors_document() -> str:
    """`docs/errors.md` as it should be."""
    from core import errors  # noqa: PLC0415 - needs Django, which `main` sets up
    from core.api.problems import status_of  # noqa: PLC0415

    import_everything()
    # A kind stands for its errors, and is no answer of its own but for these; a field's error has the field's code.
    answers = {errors.TrinityError, errors.Invalid, errors.Unauthenticated, errors.NotFound, errors.Unavailable}
    answers |= {cls for cls in _below(errors.TrinityError) if not cls.__subclasses__()} - {errors.InvalidFields}
    answers = {cls for cls in answers if cls.__module__.partition(".")[0] in PACKAGES}  # tests have errors of their own
    rows = {(status_of(cls.__new__(cls)), cls.code, _sentence(cls.__doc__), _members(cls.members)) for cls in answers}
    lines = [f"| `{code}` | {status} | {sentence} | {members} |" for status, code, sentence, members in sorted(rows)]
    return _HEAD + "\n".join(lines) + "\n"


def contract_document() -> str:
    """`docs/openapi.json` as it should be: what `/api/schema/` serves."""
    from drf_spectacular.generators import SchemaGenerator  # noqa: PLC0415 - as above

    return json.dumps(SchemaGenerator().get_schema(request=None, public=True), indent=1, ensure_ascii=False, default=str) + "\n"


def _below(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _members(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names if name != "execution_id")


def main() -> None:
    """Write them."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
    sys.path.insert(0, str(ROOT))
    import_module("django").setup()
    ERRORS.write_text(errors_document())
    CONTRACT.write_text(contract_document())


if __name__ == "__main__":
    main()
