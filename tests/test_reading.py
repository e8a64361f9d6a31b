"""Whoever follows a document notices where it says what isn't so."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.agents.server import AgentServer
from tests.flows.reading import Answer, Reader, Step, alike, check_answer, shown, steps_of

DOCUMENT = """
```text
never run
```

```sh
N=1
# One, of the first:
N=$((N + 1)); curl -s $URL/api/task --json '{"message": "m", "execution_id": "'$N'"}'
# 200
# Server: BaseHTTP/…
# {"status": "success", "response": "done: m",
#  …}
export N
```

```python
import os
word = "two"
```

```python
print(word, os.environ["N"])
# two 2
```
"""


def follow(document: Path, agent_server: AgentServer) -> None:
    with Reader(document.parent, URL=agent_server.url) as reader:
        for step in steps_of(document):
            reader.follow(step)


def test_examples_are_followed_with_what_came_before_them(agent_server: AgentServer, tmp_path: Path) -> None:
    (tmp_path / "document.md").write_text(DOCUMENT)
    steps = list(steps_of(tmp_path / "document.md"))
    assert [(step.place, step.language, len(step.answer)) for step in steps] == [
        ("document.md:7", "sh", 4), ("document.md:14", "sh", 0), ("document.md:18", "python", 0), ("document.md:23", "python", 1),
    ]  # fmt: skip
    follow(tmp_path / "document.md", agent_server)


@pytest.mark.parametrize(("wrong", "right"), [("false; curl", "curl"), ('"status=500"', '"m"'), ("# two 3", "# two 2")])
def test_what_does_not_go_as_written_is_noticed(agent_server: AgentServer, tmp_path: Path, wrong: str, right: str) -> None:
    assert right in DOCUMENT
    (tmp_path / "document.md").write_text(DOCUMENT.replace(right, wrong).replace("# 200\n", ""))
    with pytest.raises(AssertionError):
        follow(tmp_path / "document.md", agent_server)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["202", "Location: /x/…/", '{"a": 1,', "  …}"], True),
        (["202"], True),
        (["202", "Location: /x/1/"], True),
        (["200", '{"a": 1, …}'], False),
        (['{"a": 1, …}'], False),
        (["202 {}"], False),
        (["202", "Location: /y/…/"], False),
        (["202", "Retry-After: …"], False),
    ],
)
def test_an_answer_is_as_shown_by_status_headers_and_body(answer: list[str], expected: bool) -> None:
    step = Step(place="document.md:1", language="sh", code="", answer=tuple(answer))
    got = Answer(status=202, head="HTTP/1.1 202 Accepted\nlocation: /x/1/\n", body='{"a": 1, "b": 2}')
    with nullcontext() if expected else pytest.raises(AssertionError):
        check_answer(step, got)


@pytest.mark.parametrize(
    ("says", "is_", "expected"),
    [
        ('{"a": 1, …}', {"a": 1, "b": 2}, True),
        ('{"a": 1}', {"a": 1, "b": 2}, False),
        ('{"a": 1, …}', {"b": 2}, False),
        ('{"a": …}', {"a": None}, True),
        ('{"a": "01…"}', {"a": "0123"}, True),
        ('{"a": "01…"}', {"a": "1234"}, False),
        ('{"a": 1}', {"a": True}, False),
        ('[1, …]', [1, 2], True),
        ('[2, …]', [1, 2], False),
        ('[1, …]', [], False),
        ('[{"a": 1, …}]', [{"a": 1}], True),
        ('{"a": […]}', {"a": [1]}, True),
        ('{"at": "2030-01-31T09:00:00Z"}', {"at": "2026-01-31T09:00:00.125Z"}, True),
        ('{"at": "2030-01-31T09:00:00Z"}', {"at": "soon"}, False),
    ],
)  # fmt: skip
def test_what_is_shown_stands_for(says: str, is_: object, expected: bool) -> None:
    assert alike(shown(says), is_) is expected
