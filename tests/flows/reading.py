"""A document's examples, run one after the other as its reader would, and held against the answers that it shows.

A step is what stands between two answers in a block of `sh`, or a whole block of `python`. Blocks of `text` are not run. Below the
commands of `sh` the answer of the last `curl` is written as comments: its status (none: 200), headers, its body. Below a program of
`python`, what it prints. `…` stands for anything: in a text, as a value, and at the end of an object or a list for all that is left
out. A time stands for any time.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from core.tether import tethered
from tests.waiting import until

STEP_SECONDS = 60.0
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ANSWER = re.compile(r"# (?:\d{3}\b|[{\[])")
_HEADER = re.compile(r"([A-Za-z-]+): (.*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
#: Notes the head and the body of each answer, so that they can be looked at wherever the command sends them.
_CURL = r"""
curl() {
  local answer
  answer=$(mktemp -p "$ANSWERS")
  command curl --show-error --dump-header "$answer" "$@" | tee "$answer.body" && echo "$answer" >> "$ANSWERS/order"
}
"""
#: Runs programs in one namespace, as a prompt does.
_PROMPT = """
import contextlib, pathlib, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    program, out, done = map(pathlib.Path, line.split())
    with out.open("w") as file, contextlib.redirect_stdout(file):
        exec(compile(program.read_text(), program, "exec"), names)
    done.touch()
"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Commands, or a program, and what the document says they answer."""

    place: str
    language: str
    code: str
    answer: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a `curl` got."""

    status: int
    head: str
    body: str


def steps_of(document: Path) -> Iterator[Step]:
    """The document's examples in their order."""
    text = document.read_text()
    for block in _BLOCK.finditer(text):
        cut = _shell_steps if block[1] == "sh" else _program
        line = text.count("\n", 0, block.start(2)) + 1
        for code, answer in cut(block[2].splitlines()):
            yield Step(place=f"{document.name}:{line}", language=block[1], code=code, answer=answer)
            line += code.count("\n") + 1 + len(answer)


def _shell_steps(lines: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    code: list[str] = []
    answer: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("# ") and (answer or _ANSWER.match(line)):
            answer.append(line[2:])
            continue
        if answer:
            yield "\n".join(code), tuple(answer)
            code, answer = [], []
        code.append(line)
    if "".join(code).strip():
        yield "\n".join(code), ()


def _program(lines: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    end = len(lines)
    while lines[end - 1].startswith("# "):
        end -= 1
    yield "\n".join(lines[:end]), tuple(line[2:] for line in lines[end:])


class Reader:
    """Somebody with a shell, and in it, from the first program on, a Python prompt."""

    def __init__(self, directory: Path, **env: str) -> None:
        """`env` are the variables that the document takes for set."""
        self._directory = directory
        self._answers = directory / "answers"
        self._answers.mkdir()
        self._order = self._answers / "order"
        self._steps = 0
        inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self._shell = self._started("shell", ["bash", "-euo", "pipefail"], inherited | env | {"ANSWERS": str(self._answers)})
        self._prompt: subprocess.Popen[str] | None = None
        self._in_shell(_CURL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in filter(None, (self._prompt, self._shell)):
            process.kill()
            process.communicate()

    def follow(self, step: Step) -> None:
        """Run one step; it must succeed, and answer as the document says."""
        if step.language == "python":
            said = self._in_prompt(step.code).splitlines()
            assert len(said) == len(step.answer), (step.place, said)
            assert all(_alike_text(*pair) for pair in zip(step.answer, said, strict=True)), (step.place, said)
            return
        answers = self._in_shell(step.code)
        for answer in answers[:-1] if step.answer else answers:
            assert answer.status < 400, (step.place, answer)
        if step.answer:
            assert answers, f"{step.place}: nothing was asked"
            check_answer(step, answers[-1])

    def _in_shell(self, code: str) -> list[Answer]:
        self._order.write_text("")
        file, done = self._written(code)
        self._run(self._shell, f". {file} < /dev/null > {file}.out; env -0 > {self._directory}/env; touch {done}", done)
        return [_answer(Path(name)) for name in self._order.read_text().split()]

    def _in_prompt(self, code: str) -> str:
        if self._prompt is None:
            env = dict(line.split("=", 1) for line in (self._directory / "env").read_text().split("\0") if "=" in line)
            self._prompt = self._started("prompt", [sys.executable, "-c", _PROMPT], env)
        file, done = self._written(code)
        out = file.with_suffix(".out")
        self._run(self._prompt, f"{file} {out} {done}", done)
        return out.read_text()

    def _written(self, code: str) -> tuple[Path, Path]:
        self._steps += 1
        file = self._directory / f"step{self._steps}"
        file.write_text(f"{code}\n")
        return file, file.with_suffix(".done")

    def _run(self, process: subprocess.Popen[str], command: str, done: Path) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{command}\n")
        process.stdin.flush()
        until(lambda: done.exists() or process.poll() is not None, STEP_SECONDS)
        assert done.exists(), f"{done.with_suffix('').read_text()}\n{self._complaints()}"

    def _complaints(self) -> str:
        bodies = [path.read_text() for path in sorted(self._answers.glob("*.body"), key=lambda path: path.stat().st_mtime_ns)]
        return "\n".join([*(path.read_text() for path in self._directory.glob("*.log")), *bodies[-1:]])

    def _started(self, name: str, argv: list[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                tethered(argv), stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, env=env, cwd=self._directory
            )  # fmt: skip


def _answer(file: Path) -> Answer:
    head, body = file.read_text(), Path(f"{file}.body").read_text()
    return Answer(status=int(head.split()[1]), head=head, body=body.removeprefix(head))


def check_answer(step: Step, got: Answer) -> None:
    """Fail unless what came is what the document says."""
    lines = list(step.answer)
    first = re.match(r"(\d{3})\s*(.*)", lines[0])
    status = int(first[1]) if first else 200
    rest = [first[2], *lines[1:]] if first else lines
    assert got.status == status, (step.place, got)
    while rest and (header := _HEADER.fullmatch(rest[0] or "-: ")):
        if rest.pop(0):
            found = re.search(rf"^{re.escape(header[1])}: (.*?)\r?$", got.head, re.IGNORECASE | re.MULTILINE)
            assert found, (step.place, header[1], got.head)
            assert _alike_text(header[2], found[1]), (step.place, header[0], found[1])
    if body := "\n".join(rest):
        assert alike(shown(body), json.loads(got.body)), f"{step.place}\n{body}\n{got.body}"


def shown(text: str) -> Any:
    """The JSON that the document shows, `…` made a text, and a member "…" where an object leaves members out."""
    text = re.sub(r"(: ?)…(?=\s*[,}\]])", r'\1"…"', text)
    text = re.sub(r"…(?=\s*\})", '"…": "…"', text)
    return json.loads(re.sub(r"…(?=\s*\])", '"…"', text))


def alike(says: Any, is_: Any) -> bool:
    """Whether `is_` is what the document `says`."""
    if says == "…":
        return True
    if isinstance(says, dict) and isinstance(is_, dict):
        names = says.keys() - {"…"}
        return (names == is_.keys() or ("…" in says and names <= is_.keys())) and all(alike(says[name], is_[name]) for name in names)
    if isinstance(says, list) and isinstance(is_, list):
        short = says[-1:] == ["…"]
        first = says[:-1] if short else says
        return (len(first) == len(is_) or (short and len(first) <= len(is_))) and all(map(alike, first, is_))
    if isinstance(says, str) and isinstance(is_, str):
        return bool(_TIME.fullmatch(says) and _TIME.fullmatch(is_)) or _alike_text(says, is_)
    return type(says) is type(is_) and says == is_


def _alike_text(says: str, is_: str) -> bool:
    return bool(re.fullmatch(".*".join(map(re.escape, says.split("…"))), is_, re.DOTALL))
