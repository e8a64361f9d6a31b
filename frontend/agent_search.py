"""What people type to find agents: words, and qualifiers such as `status:paused owner:me`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.health import Health
from fleet.models import Agent

MAX_CHARACTERS = 200
_PART = re.compile(r'(?:(?P<qualifier>[a-z]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))', re.IGNORECASE)
_OF_HEALTH = ("health", "status")


@dataclass(frozen=True, kw_only=True)
class Search:
    """What an agent must be to be found; of several of one kind any does, of the words each must occur."""

    words: tuple[str, ...] = ()
    healths: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()

    def matches(self, agent: Agent, *, health: Health, reader: str) -> bool:
        """Whether the agent, read with its owner, is looked for by `reader`."""
        owner = agent.owner.get_username().lower()
        if self.healths and health.value not in self.healths:
            return False
        if self.owners and owner not in {reader.lower() if name == "me" else name for name in self.owners}:
            return False
        text = f"{agent.name}\n{agent.description}".lower()
        return all(word in text for word in self.words)


def parse(query: str) -> Search:
    """The search that `query` says; a qualifier that isn't one is a word like any other."""
    parts = list(_parts(query[:MAX_CHARACTERS]))
    return Search(
        words=tuple(value for kind, value in parts if kind == ""),
        healths=frozenset(re.sub(r"[\s-]", "_", value) for kind, value in parts if kind in _OF_HEALTH),
        owners=frozenset(value for kind, value in parts if kind == "owner"),
    )


def _parts(query: str) -> Iterable[tuple[str, str]]:
    for part in _PART.finditer(query):
        kind, value = (part["qualifier"] or "").lower(), (part["quoted"] or part["plain"] or "").lower()
        if kind in (*_OF_HEALTH, "owner") and value:
            yield kind, value
        elif part[0].strip('"'):
            yield "", part[0].strip('"').lower()
