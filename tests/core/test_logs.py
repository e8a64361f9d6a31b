"""Log lines: JSON for programs, text for a person at a terminal."""

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from core.logs import legible
from core.process_tree import ProcessTree, Program

LINE = {"event": "slots.rebuilt", "level": "warning", "logger": "capacity", "timestamp": "2026-12-01T01:06:16.104770Z", "holders": 2}


class Terminal(io.StringIO):
    """A terminal, or a pipe."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


def plain(text: str) -> str:
    """Without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_line_of_ours_reads_as_text() -> None:
    (text,) = legible(json.dumps(LINE))
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[warning\] slots\.rebuilt \[capacity\] holders=2", plain(text).strip())


def test_an_exception_has_its_lines() -> None:
    text = legible(json.dumps(LINE | {"exception": "Traceback\n  here\nValueError: no"}))
    assert text[-3:] == ["Traceback", "  here", "ValueError: no"]


@pytest.mark.parametrize("line", ["hello", "", "{", '{"a": 1}', "[1]", "null", '{"event":', "[" * 5000, "{" * 5000, '{"event": "x"}'])
def test_any_other_line_is_left_as_it_is(line: str) -> None:
    assert legible(line) == [line]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_children_say_is_text_on_a_terminal_and_json_elsewhere_and_in_their_files(tmp_path: Path, is_terminal: bool) -> None:
    terminal = Terminal(is_terminal)
    tree = ProcessTree(log_dir=tmp_path, terminal=terminal, grace_seconds=1)
    said = json.dumps(LINE)
    with tree.until_signalled():
        code, _ = tree.run_once(Program(name="child", argv=[sys.executable, "-c", f"print({said!r})"], env=dict(os.environ)))
    assert code == 0
    assert (tmp_path / "child.log").read_text() == f"{said}\n"
    shown = plain(terminal.getvalue())
    assert (said in shown) != is_terminal
    assert shown.startswith("child    | ")
