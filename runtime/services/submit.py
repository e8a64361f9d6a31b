"""Submitting a task: the one door that every way in goes through."""

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from backlog import selectors as rows
from backlog import services as backlog
from backlog.drafts import Draft, IdempotencyRequest, Overflow, Queued
from backlog.errors import CapacityFull, KeyTaken
from backlog.models import Execution, Trigger
from capacity.gate import Gate, gate_of, gated
from capacity.manager import CapacityManager, Reject
from capacity.refusals import measured
from core import events
from core.conf import conf
from core.errors import Invalid
from core.ids import new_id
from fleet import access
from fleet.models import Agent, OnFull, Session
from fleet.principals import Principal, PrincipalKind, Source

from .. import dispatch
from ..errors import ExecutionIdTaken, IdempotencyMismatch, SessionClosed, SessionNotFound
from ..events import ExecutionQueued
from .overflows import QueueAttended, QueuePersistent

manager = CapacityManager()


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A task as a caller asks for it; `timeout_seconds` None is the agent's default.

    `execution_id` is one that the caller made before and keeps: submitted again, it answers with the execution it made.
    """

    message: str
    on_full: OnFull
    timeout_seconds: int | None = None
    session_id: uuid.UUID | None = None
    model: str = ""
    system_prompt: str = ""
    allowed_tools: list[str] | None = None
    max_turns: int | None = None
    priority: int = 5
    metadata: dict[str, Any] | None = None
    triggered_by: Trigger = Trigger.MANUAL
    idempotency: IdempotencyRequest | None = None
    execution_id: uuid.UUID | None = None
    #: The execution that this one does again.
    retry_of_id: uuid.UUID | None = None
    #: `session_id` is new: the session is made with the execution.
    opens_session: bool = False
    #: It waits in line only while its caller is seen to.
    attended: bool = False


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What became of a submit; `queue_position` is None for one that holds a slot.

    `replayed`: the execution was there already, by its idempotency key or its id.
    """

    execution_id: uuid.UUID
    agent: Agent
    timeout_seconds: int
    queue_position: int | None = None
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class Sender:
    """On whose behalf a task is submitted: what is kept of them with the execution."""

    source: Source
    user_id: int | None = None
    key_id: int | None = None
    public_link_id: int | None = None
    #: A `system` key's run may take longer than the agent's own limit.
    is_system: bool = False
    #: An `agent` key is its owner's, but not its owner in person: it goes on with no session but those that it began.
    is_agent: bool = False

    @classmethod
    def of(cls, principal: Principal) -> "Sender":
        """A signed-in caller."""
        return cls(
            source=principal.source,
            user_id=principal.user.pk,
            key_id=principal.key.pk if principal.key else None,
            is_system=principal.kind is PrincipalKind.SYSTEM,
            is_agent=principal.kind is PrincipalKind.AGENT,
        )


def submit_task(*, principal: Principal, name: str, request: TaskRequest) -> Submitted:
    """Accept a task (it runs, or waits in line) or refuse it without a trace.

    Raises the refusals of `capacity.errors`, `IdempotencyMismatch`, `ExecutionIdTaken`, and `access`'s errors. The same
    idempotency key, or the same id, answers with the execution it made; of any number that submit it at once one does.
    """
    agents = rows.with_key_known(gated(Agent.objects.all()), asked=request.idempotency)
    agent = access.agent_for(principal=principal, name=name, verb="submit", queryset=agents)
    return submit_as(sender=Sender.of(principal), agent=agent, request=request)


def submit_as(*, sender: Sender, agent: Agent, request: TaskRequest) -> Submitted:
    """`submit_task` for a sender who may, to an agent read through `gated` and `with_key_known`."""
    asked_before = rows.key_known(agent) or request.execution_id is not None
    if asked_before and (replay := _replay(agent=agent, request=request)) is not None:
        return replay
    draft = _draft(sender=sender, agent=agent, request=request)
    try:
        return _admit(agent=agent, draft=draft, on_full=request.on_full)
    except KeyTaken:
        return _replayed(agent=agent, request=request)
    except CapacityFull as full:
        # A twin may have been accepted in between: its execution answers, not the refusal.
        if (replay := _replay(agent=agent, request=request)) is not None:
            return replay
        raise measured(full, gate_of(agent)) from full


def _admit(*, agent: Agent, draft: Draft, on_full: OnFull) -> Submitted:
    gate = gate_of(agent)
    acquired = manager.acquire(agent=agent, draft=draft, overflow=_overflow(draft, on_full=on_full, gate=gate))
    dispatch.start(acquired.admissions)
    submitted = Submitted(execution_id=draft.id, agent=agent, timeout_seconds=draft.timeout_seconds)
    if not isinstance(acquired.outcome, Queued):
        return submitted
    if any(admission.execution_id == draft.id for admission in acquired.admissions):
        return submitted
    events.publish(ExecutionQueued(execution_id=draft.id, agent=agent.name))
    return replace(submitted, queue_position=acquired.outcome.position)


def _overflow(draft: Draft, *, on_full: OnFull, gate: Gate) -> Overflow:
    if on_full == OnFull.REJECT:
        return Reject()
    return QueueAttended(gate=gate) if draft.attended else QueuePersistent(gate=gate)


def _draft(*, sender: Sender, agent: Agent, request: TaskRequest) -> Draft:
    timeout = request.timeout_seconds or agent.execution_timeout_seconds
    may_exceed = sender.is_system or request.triggered_by == Trigger.SCHEDULE
    if timeout > agent.execution_timeout_seconds and not may_exceed:
        sentence = f"timeout_seconds must be an integer between 1 and {agent.execution_timeout_seconds}"
        raise Invalid(sentence, pointer="/timeout_seconds")
    if not request.opens_session:
        _check_session(agent=agent, session_id=request.session_id, sender=sender)
    return Draft(
        id=request.execution_id or new_id(),
        message=request.message,
        timeout_seconds=timeout,
        triggered_by=request.triggered_by,
        source_kind=sender.source.kind,
        source_name=sender.source.name,
        submitted_by_id=sender.user_id,
        submitted_key_id=sender.key_id,
        public_link_id=sender.public_link_id,
        session_id=request.session_id,
        opens_session=request.opens_session,
        attended=request.attended,
        model=request.model,
        system_prompt=request.system_prompt,
        allowed_tools=request.allowed_tools,
        max_turns=request.max_turns,
        metadata=request.metadata or {},
        priority=request.priority,
        retry_of_id=request.retry_of_id,
        idempotency=request.idempotency,
    )


def _check_session(*, agent: Agent, session_id: uuid.UUID | None, sender: Sender) -> None:
    """Raise unless it is an open session of the agent and of the sender: whoever speaks in it uses its context and its approvals."""
    if session_id is None:
        return
    session = Session.objects.filter(pk=session_id, agent=agent).only("state", "owner_id", "key_id").first()
    if session is None or not _may_speak(sender, session):
        raise SessionNotFound
    if session.state == Session.State.CLOSED:
        raise SessionClosed(session_id=session_id)


def _may_speak(sender: Sender, session: Session) -> bool:
    if sender.is_agent:
        return session.key_id == sender.key_id
    return sender.is_system or session.owner_id == sender.user_id


def _replay(*, agent: Agent, request: TaskRequest) -> Submitted | None:
    """What the request's idempotency key has made, or its id."""
    return _replay_of_key(agent=agent, asked=request.idempotency) or _replay_of_id(agent=agent, execution_id=request.execution_id)


def _replay_of_id(*, agent: Agent, execution_id: uuid.UUID | None) -> Submitted | None:
    row = None if execution_id is None else Execution.objects.filter(pk=execution_id).first()
    if row is not None and row.agent_id != agent.pk:
        raise ExecutionIdTaken(execution_id=execution_id)
    return None if row is None else _submitted_before(row, agent=agent)


def _replay_of_key(*, agent: Agent, asked: IdempotencyRequest | None) -> Submitted | None:
    if asked is None:
        return None
    record = rows.key_record(agent=agent, asked=asked)
    if record is None or backlog.forget_key(record, older_than=timedelta(seconds=conf.idempotency_seconds)):
        return None
    if record.body_digest != asked.body_digest:
        raise IdempotencyMismatch(execution_id=record.execution_id)
    return _submitted_before(record.execution, agent=agent)


def _submitted_before(row: Execution, *, agent: Agent) -> Submitted:
    return Submitted(
        execution_id=row.pk, agent=agent, timeout_seconds=row.timeout_seconds, queue_position=rows.position_of(row), replayed=True
    )


def _replayed(*, agent: Agent, request: TaskRequest) -> Submitted:
    replay = _replay(agent=agent, request=request)
    if replay is None:
        raise KeyTaken
    return replay
