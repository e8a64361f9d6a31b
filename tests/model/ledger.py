"""The agents' side: what work goes on, what was told to end, which leases hold."""

import uuid

from capacity import keys, slots

from .ground import Ground
from .rows import Row, named


class Ledger(Ground):
    """Work as the agents see it."""

    def publish(self, row: Row, token: uuid.UUID) -> None:
        """Send the message that `row` may start; it may get lost, or come twice."""
        if self.lose_messages and self.random.random() < 0.1:
            return
        self.messages += [(row, token)] * self.random.choice((1, 1, 1, 1, 1, 1, 1, 2))

    def answer_is_lost(self) -> bool:
        """Whether the answer to a script that was run gets lost."""
        return self.lose_answers and self.random.random() < 0.1

    def agent_can_be_asked(self) -> bool:
        """Whether an HTTP agent answers."""
        return self.random.random() < 0.7

    # -- Work ----------------------------------------------------------------------------------------------------------
    def begin(self, row: Row, token: uuid.UUID) -> bool:
        """Begin the work, unless the agent was told to end it before, or (locally) its lease has ended."""
        if row.http and row.id in self.terminated:
            return False
        if not row.http and token in self.lapsed and self.rules.lease_checked_before_work:
            return False
        row.begun += 1
        self.live[token] = row
        if row.begun > 1:
            self.fail(f"TWICE row {row.key}")
        of_session = [t for t, other in self.live.items() if row.session is not None and other.session == row.session]
        if len([t for t in of_session if t not in self.forced]) > 1:
            self.fail(f"SESSION {row.session} runs twice")
        if token not in self.grants:
            self.fail(f"UNGRANTED row {row.key}")
        self._check_limits(row)
        return True

    def _check_limits(self, row: Row) -> None:
        """When the last of what goes on was granted, the others held slots too: so they are no more than it read.

        But for those that were robbed of theirs: the limit may be exceeded by them, and by nothing else.
        """
        robbed = self.robbed
        holding = {token: other for token, other in self.live.items() if token not in robbed}
        of_agent = [token for token, other in holding.items() if named(other.agent) == named(row.agent)]
        if of_agent and len(of_agent) > (limit := self._latest(of_agent).limit):
            self.fail(f"OVER limit {limit} of {row.agent}")
        if holding and (cap := self._latest(list(holding)).cap) is not None and len(holding) > cap:
            self.fail(f"OVER fleet {cap}")

    def _latest(self, tokens: list[uuid.UUID]) -> slots.Any:
        return max((self.grants[token] for token in tokens), key=lambda grant: grant.nth)

    def end(self, token: uuid.UUID) -> None:
        """The work is over."""
        self.live.pop(token, None)

    def terminate(self, row: Row) -> None:
        """Tell an HTTP agent to end an execution; it refuses that id from now on."""
        if self.rules.agent_remembers_terminate:
            self.terminated.add(row.id)
        for token in [token for token, other in self.live.items() if other is row]:
            self.end(token)

    # -- Leases --------------------------------------------------------------------------------------------------------
    def renewed(self, token: uuid.UUID) -> None:
        """The store has answered `ok` to this run."""
        self.lapsed.discard(token)
        self.carried_by_row.discard(token)

    def lapse(self, holder: slots.FleetHolder) -> None:
        """A lease ends. A local run's supervisor has ended its work before, unless its row carried it on."""
        seconds, _ = self.valkey.time()
        self.valkey.zadd(keys.leases(), {f"{holder.agent}:{holder.execution_id}": seconds - 1}, xx=True)
        if holder.phase == slots.Phase.GRANTED:
            return
        self.lapsed.add(holder.token)
        self.ever_lapsed.add(holder.token)
        row = self.live.get(holder.token)
        if row is not None and not row.http and holder.token not in self.carried_by_row and self.rules.local_work_ends_with_lease:
            self.end(holder.token)

    def stop_carrying(self, token: uuid.UUID) -> None:
        """What a row carried on ends: nobody has said `ok` for long enough."""
        self.carried_by_row.discard(token)
        self.lapsed.add(token)
        self.ever_lapsed.add(token)
        row = self.live.get(token)
        if row is not None and not row.http:
            self.end(token)
