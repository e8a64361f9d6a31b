"""What the browser is sent, file by file: modules that find each other, templates that a strict policy lets be."""

import re
from pathlib import Path

import pytest

from tests.architecture.documents import ROOT

FRONTEND = ROOT / "frontend"
STATIC = FRONTEND / "static"
MODULES = sorted(STATIC.rglob("*.js"))
TEMPLATES = sorted((FRONTEND / "templates").rglob("*.html"))
#: `import … from "…"`, `import "…"`, `export … from "…"`, `import("…")`; in comments as types as well.
IMPORTED = re.compile(r"""(?:\bfrom\s+|\bimport\s*\(?\s*)["']([^"']+)["']""")
NAMES = re.compile(r"""^import\s*\{([^}]*)\}\s*from\s*["']([^"']+)["']""", re.MULTILINE)
INLINE = re.compile(r"<style\b|\sstyle=|\son[a-z]+=[\"']|javascript:|<script(?![^>]*\ssrc=)", re.IGNORECASE)
LOADED = re.compile(r"""\{% static ['"]([^'"]+)['"] %\}""")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_what_is_there(module: Path) -> None:
    text = module.read_text()
    for name in IMPORTED.findall(text):
        assert name.startswith("."), f"{name}: nothing is built, so a name leads nowhere"
        assert (module.parent / name).resolve().is_file(), name
    for names, source in NAMES.findall(text):
        exporter = (module.parent / source).resolve().read_text()
        for name in (part.split(" as ")[0].strip() for part in names.split(",") if part.strip()):
            assert re.search(rf"export [^;{{]*\b{re.escape(name)}\b|export \{{[^}}]*\b{re.escape(name)}\b", exporter), f"{name} of {source}"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_inline_and_loads_what_is_there(template: Path) -> None:
    text = template.read_text()
    assert INLINE.findall(text) == []
    for name in LOADED.findall(text):
        assert not name.startswith("trinity/") or (STATIC / name).is_file(), name


def test_what_scripts_write_has_no_inline_style_or_handler_either() -> None:
    written = {path.name: INLINE.findall(path.read_text()) for path in MODULES}
    assert {name: found for name, found in written.items() if found} == {}
