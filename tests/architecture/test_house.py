"""The house: who may import whom, how large a room may be, and what no file may say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.db.models import ForeignObject

from tests.architecture.documents import ROOT

#: From the ground up. Django's own apps lie below.
FLOORS = ("core", "fleet", "backlog", "capacity", "runtime", "frontend")
MAX_LINES = 400
#: A table of cases or one element in one file: longer, and still one room.
LARGER = {"frontend/static/trinity/elements/capacity-meter.js": 520, "capacity/slots.py": 460}
_TEXT = {".py", ".md", ".toml", ".txt", ".lua", ".js", ".css", ".html", ".yaml", ".yml", ".sh", ""}
_MACHINE = re.compile(r"(?<![\w.$\"'}])/(?:work|root|home|Users)/\w|/tmp/\w|/opt/\w|pypi\.org|files\.pythonhosted|npmjs|--index-url")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository; of a source distribution, which has no repository, all that lie there."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], check=False, cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_imports_go_downwards_only() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], check=False, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("model", [m for m in apps.get_models() if m._meta.app_label in FLOORS], ids=lambda model: model._meta.label)
def test_foreign_keys_point_downwards_only(model: type) -> None:
    floor = FLOORS.index(model._meta.app_label)
    for field in model._meta.get_fields():
        if isinstance(field, ForeignObject) and field.related_model._meta.app_label in FLOORS:
            assert FLOORS.index(field.related_model._meta.app_label) <= floor, field


def test_no_file_wants_two_rooms() -> None:
    long = {}
    for path in tracked("*.py", "*.js", "*.css", "*.lua", "*.html"):
        name, lines = str(path.relative_to(ROOT)), len(path.read_text().splitlines())
        if "tests" not in path.parts and lines > LARGER.get(name, MAX_LINES):
            long[name] = lines
    assert long == {}


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = {}
    for path in tracked():
        if path.suffix in _TEXT and path != Path(__file__):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if _MACHINE.search(line):
                    found[f"{path.relative_to(ROOT)}:{number}"] = line.strip()
    assert found == {}


@pytest.mark.parametrize("package", FLOORS)
def test_a_package_says_what_it_is_for(package: str) -> None:
    assert (ROOT / package / "__init__.py").read_text().startswith('"""')
