"""What can be configured and what can go wrong is written down, all of it."""

import re
from pathlib import Path

import pytest

from core.conf import Conf, Setting
from tests.architecture import documents

ROOT = documents.ROOT
SETTINGS = ROOT / "docs" / "settings.md"


def rows(path: Path) -> dict[str, list[str]]:
    """The cells of each table row, by the name in its first cell."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in path.read_text().splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def written(value: object) -> str:
    """A default as the table writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value in {"", ()} else f"`{value}`"


@pytest.mark.parametrize("setting", Conf.all().values(), ids=lambda setting: setting.name)
def test_every_setting_is_documented_with_its_default(setting: Setting[object]) -> None:
    documented = rows(SETTINGS)
    assert setting.name in documented
    default, meaning, harm = documented[setting.name]
    assert default == written(setting.default)
    assert meaning
    assert harm


def test_every_variable_that_the_code_reads_is_documented() -> None:
    read = set()
    for package in ("trinity", "core", "fleet", "backlog", "capacity", "runtime", "gateway", "frontend"):
        for file in (ROOT / package).rglob("*.py"):
            read |= set(re.findall(r"""env\.\w+\(\s*"([A-Z_]+)\"""", file.read_text()))
            read |= set(re.findall(r"""environ(?:\.get\(|\[)"([A-Z_]+)\"""", file.read_text()))
    assert read - {"PYTHONPATH"} - set(rows(SETTINGS)) == set()


def test_no_setting_is_documented_that_nobody_reads() -> None:
    code = "".join(file.read_text() for folder in ("trinity", "core", "tests") for file in (ROOT / folder).rglob("*.py"))
    assert [name for name in rows(SETTINGS) if name not in code] == []


def test_every_error_is_documented() -> None:
    assert documents.ERRORS.read_text() == documents.errors_document(), "run `make docs`"


def test_the_contract_is_written_down() -> None:
    assert documents.CONTRACT.read_text() == documents.contract_document(), "run `make docs`"
