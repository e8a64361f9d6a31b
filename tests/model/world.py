"""What the actors act on: rows, messages, the agents' own ledger, the store. Every method is one atomic step, and checks as it goes."""

import uuid
from collections import Counter

from capacity import keys, slots
from capacity.errors import SlotsUnavailable
from capacity.leases import Lease
from tests import invariants
from tests.invariants import SeenHolder

from .ground import LEASE_SECONDS
from .ledger import Ledger
from .rows import TERMINAL, Row, named
from .table import Table

MOST_WAITS = 200
OTHER_RUN = "0" * 40

#: Key → its life in milliseconds (0: for ever) and its value.
Snapshot = dict[bytes, tuple[int, bytes]]


class World(Table, Ledger):
    """All of it."""

    def new_row(self, *, http: bool | None = None, crowded: bool = False) -> Row:
        """A request that has no row yet; `crowded`: all of one session."""
        session = self.random.choice((None, None, 1, 2)) if not crowded else 1
        is_http = self.random.random() < 0.5
        row = Row(
            id=self.new_uuid(),
            key=next(self._keys),
            agent="a" if session == 1 else "b" if session == 2 and "b" in self.agents else self.random.choice(list(self.agents)),
            http=is_http if http is None else http,
            priority=self.random.choice((5, 5, 5, 5, 0, 3, 7, 9)),
            session=session,
            reject=self.random.random() < 0.1,
            unfit=self.random.random() < 0.05,
        )
        self.requests.append(row)
        return row

    @staticmethod
    def lease(row: Row, token: uuid.UUID) -> Lease:
        """The row's right to a slot under `token`. Slots go by the agent's name, rows by its key."""
        return Lease(agent=named(row.agent), execution_id=row.id, token=token, timeout_seconds=900, number=row.number)

    def holders(self) -> list[slots.FleetHolder] | None:
        """Every holder; None while a rebuild is due."""
        try:
            return slots.holders_of_fleet()
        except SlotsUnavailable:
            return None

    # -- The store -----------------------------------------------------------------------------------------------------
    def open_store(self) -> None:
        """A store rebuilt from no rows."""
        self.valkey.flushdb()
        nonce = self.new_uuid()
        if not (slots.rebuild_begin(nonce=nonce) and slots.rebuild_open(nonce=nonce)):
            self.fail("STORE")
        slots.reclaim(lease_seconds=LEASE_SECONDS)  # the first pass would give every lease that lapses a fresh one

    def flush(self) -> None:
        """Every key is gone."""
        self.valkey.flushdb()
        self.emptied = True

    def snapshot(self) -> Snapshot:
        """What a save to disk would keep."""
        found = sorted(self.valkey.scan_iter(match="agent:*", count=1000))
        with self.valkey.pipeline(transaction=False) as pipe:
            for key in found:
                pipe.pttl(key)
                pipe.dump(key)
            answers = pipe.execute()
        lives = zip(found, answers[::2], answers[1::2], strict=True)
        return {key: (max(life, 0), data) for key, life, data in lives if data is not None}

    def restore(self, saved: Snapshot) -> None:
        """A kill and a restart from `saved`: the keys of then, under another run of the server."""
        with self.valkey.pipeline(transaction=False) as pipe:
            pipe.flushdb()
            for key, (milliseconds, data) in saved.items():
                pipe.restore(key, milliseconds, data)
            pipe.execute()
        for key in (keys.epoch(), keys.rebuild()):
            if (value := self.valkey.get(key)) is not None:
                self.valkey.set(key, OTHER_RUN.encode() + value[len(OTHER_RUN) :], keepttl=True)
        self.emptied = True

    def vanish(self, holder: slots.FleetHolder) -> None:
        """A slot's keys go by another hand (an eviction, an operator), its work goes on, its lease has not ended."""
        member = str(holder.execution_id)
        with self.valkey.pipeline(transaction=False) as pipe:
            pipe.hdel(keys.holders(holder.agent), member)
            pipe.zrem(keys.slots(holder.agent), member)
            pipe.zrem(keys.leases(), f"{holder.agent}:{member}")
            pipe.execute()
        self.vanished.add(holder.token)

    def rebuild_waited_for(self) -> None:
        """Somebody found another rebuild under way. One that stands still for the life of its nonce is overtaken."""
        self.waits_for_rebuild += 1
        stood_still = self.waits_for_rebuild > MOST_WAITS
        if not stood_still and self.overtakings and self.random.random() < 0.1:
            self.overtakings -= 1
            stood_still = True
        if stood_still:
            self.waits_for_rebuild = 0
            self.valkey.delete(keys.rebuild())

    # -- At rest -------------------------------------------------------------------------------------------------------
    def check_rest(self) -> None:
        """Rows, holders and limits agree, and nobody waits beside a free slot."""
        holders = slots.holders_of_fleet()
        seen = [
            SeenHolder(agent=one.agent, execution_id=one.execution_id, token=one.token, number=one.number, phase=str(one.phase))
            for one in holders
        ]
        most = {named(agent): self._most_slots(agent, holders) for agent in self.agents}
        agents = [of.seen(agent, fleet_paused=self.fleet.paused.now) for agent, of in self.agents.items() if not of.deleted.now]
        rows = [row.seen() for row in self.rows]
        self.told(lambda: invariants.check_rest(rows=rows, holders=seen, agents=agents, most_slots=most, fleet_limit=self.fleet.cap.now))

    def _most_slots(self, agent: str, holders: list[slots.FleetHolder]) -> int:
        """The largest limit that any holder under the agent's name read when it was granted."""
        read = [self.grants[one.token].limit for one in holders if one.agent == named(agent) and one.token in self.grants]
        return max(read, default=self.agents[agent].limit.now)

    def check_ended(self) -> None:
        """All that was taken in has ended, once, and nothing is held."""
        if not self.at_rest():
            self.fail(f"RESTLESS {self.holders()}")
        rows, begun = [row.seen() for row in self.rows], Counter({row.id: row.begun for row in self.requests if row.begun})
        self.told(lambda: invariants.check_ended(rows=rows, accepted=[row.id for row in rows], begun=begun))
        self.check_rest()

    def at_rest(self) -> bool:
        """Everything accepted has ended, and nothing is held; what was freed by force may go on where its agent can't be asked."""
        ended = all(row.status in TERMINAL and row.token is None for row in self.rows)
        return ended and self.forced.issuperset(self.live) and self.holders() == []
