"""Who may use each endpoint: a row for each URL name and method, held complete by `test_who_may.py`.

A new endpoint wants one line in `TABLE`: its right, the status for those who may, and a body that they can send. Where its
path names something that is not here yet, `Cast` gets it (`test_who_may.py` makes it) and `Cast.places` its place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from backlog.models import Execution
from fleet.models import Agent, ApiKey
from fleet.public_links import NewLink
from runtime.models import Schedule

#: A status and a problem's code; None where it is no problem.
Told = tuple[int, str | None]

NO_CREDENTIALS: Told = (401, "not_authenticated")
BAD_CREDENTIALS: Told = (401, "invalid_token")
CSRF_FAILED: Told = (403, "csrf_failed")
PERSON_REQUIRED: Told = (403, "person_required")
OWNER_REQUIRED: Told = (403, "owner_required")
ACCESS_DENIED: Told = (403, "access_denied")
AGENT_NOT_FOUND: Told = (404, "agent_not_found")

#: Credentials that prove nothing, or nothing any more.
DEAD = (
    "nonsense token",
    "public link's token",
    "refresh token",
    "expired token",
    "revoked key",
    "expired key",
    "deleted agent's key",
    "inactive user",
    "inactive user's key",
)
#: As seen from the agent of the table, which is `owner`'s and shared with `friend`. A browser is signed in by its session;
#: one "without CSRF" sends nothing that proves its forms to be its own. The sister agent is the owner's as well.
OWNERS = ("owner", "owner's key", "owner's browser", "owner's browser without CSRF")
FRIENDS = ("friend", "friend's key")
STRANGERS = ("stranger", "stranger's key", "stranger's browser")
AGENT_KEYS = ("agent's key", "sister agent's key", "stranger's agent's key")
SYSTEM_KEYS = ("system key",)
SUPERUSERS = ("superuser", "superuser's key")
#: Enough where nobody is refused.
SOME = ("nobody", "nonsense token", "revoked key", "owner", "system key", "owner's browser", "owner's browser without CSRF")
WHO = ("nobody", *DEAD, *OWNERS, *FRIENDS, *STRANGERS, *AGENT_KEYS, *SYSTEM_KEYS, *SUPERUSERS)
SAFE = ("GET", "HEAD", "OPTIONS")


def _each(who: tuple[str, ...], told: Told) -> dict[str, Told]:
    return dict.fromkeys(who, told)


#: A right says what those are told who may not; whoever it doesn't name may.
Right = Mapping[str, Told]

PUBLIC: Right = {}
SIGNED_IN: Right = {"nobody": NO_CREDENTIALS} | _each(DEAD, BAD_CREDENTIALS)
READ: Right = SIGNED_IN | _each((*STRANGERS, "stranger's agent's key"), ACCESS_DENIED)
SUBMIT: Right = READ
PERSON: Right = SIGNED_IN | _each((*AGENT_KEYS, *SYSTEM_KEYS), PERSON_REQUIRED)
OWN: Right = PERSON | _each(FRIENDS, OWNER_REQUIRED) | _each(STRANGERS, ACCESS_DENIED)
#: Of capacity: another sentence, the same code.
CHANGE: Right = OWN
SUPERUSER: Right = PERSON | _each((*OWNERS, *FRIENDS, *STRANGERS), ACCESS_DENIED)
#: Cancelling what `friend` submitted: theirs and the owner's; keys cancel only what they submitted themselves.
CANCEL: Right = READ | _each((*AGENT_KEYS, *SYSTEM_KEYS), ACCESS_DENIED)
#: Internal endpoints.
SYSTEM: Right = SIGNED_IN | _each((*OWNERS, *FRIENDS, *STRANGERS, *AGENT_KEYS, *SUPERUSERS), ACCESS_DENIED)
#: A page knows browsers alone: anybody else is sent to sign in.
PAGE: Right = _each(tuple(who for who in WHO if "browser" not in who), (302, None))
#: A page that tells a stranger what it would tell of an agent that isn't there.
AGENT_PAGE: Right = PAGE | {"stranger's browser": (404, None)}


@dataclass(frozen=True, kw_only=True)
class Cast:
    """What the requests are about: the agent of the table, and what belongs to it."""

    agent: Agent
    friend: User
    #: Waits in line; the friend submitted it.
    waiting: Execution
    #: Ended; the friend submitted it.
    ended: Execution
    #: Leads to the agent, and what came by it.
    link: NewLink
    by_link: Execution
    schedule: Schedule
    #: Speaks for the agent.
    agent_key: ApiKey
    #: The one that "owner's key" sends.
    owner_key: ApiKey

    def places(self) -> dict[str, Any]:
        """What stands for each placeholder of a path."""
        return {
            "name": self.agent.name,
            "execution_id": self.waiting.pk,
            "schedule_id": self.schedule.pk,
            "link_id": self.link.row.pk,
            "token": self.link.token,
            "key": "no-badge",
            "username": self.friend.get_username(),
            "key_id": self.agent_key.pk,
        }


Body = Mapping[str, Any] | Callable[[Cast], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of one endpoint."""

    right: Right
    #: What those are told who may.
    ok: Told
    body: Body | None = None
    #: A form of a page, in place of JSON.
    form: bool = False
    #: Who asks, where it isn't everybody.
    by: tuple[str, ...] = ()
    #: Other placeholders than `Cast.places` has.
    at: Callable[[Cast], dict[str, Any]] = field(default=lambda _: {})

    @property
    def asked(self) -> tuple[str, ...]:
        """Who asks."""
        return self.by or (WHO if self.right else SOME)

    def expected(self, who: str, method: str) -> Told:
        """What `who` is told."""
        if who == "owner's browser without CSRF" and method not in SAFE and (self.right or self.form):
            return (403, None) if self.form else CSRF_FAILED
        return self.right.get(who, self.ok)


def row(right: Right, ok: int | Told = 200, body: Body | None = None, **more: Any) -> Row:
    """`row(OWN, 204)`: whoever isn't refused by the right gets 204; `but={who: told}` changes the right for this row."""
    return Row(right={**right, **more.pop("but", {})}, ok=ok if isinstance(ok, tuple) else (ok, None), body=body, **more)


TASK = {"message": "hello", "async_mode": True}
SCHEDULE = {"name": "hourly", "message": "hello", "interval_seconds": 3600}
HTTP_AGENT = {"name": "new", "runtime": {"kind": "http", "url": "http://127.0.0.1:9000"}}
LOGIN = {"username": "nobody", "password": "wrong"}

TABLE: dict[str, dict[str, Row]] = {
    # -- Agents and what belongs to them ---------------------------------------------------------------------------------
    "fleet:token-create": {"POST": row(PUBLIC, (401, "invalid_credentials"), LOGIN)},
    "fleet:token-refresh": {"POST": row(PUBLIC, BAD_CREDENTIALS, {"refresh": "nonsense"})},
    "runtime:agent-list": {"GET": row(SIGNED_IN), "POST": row(PERSON, 201, HTTP_AGENT)},
    "runtime:agent-detail": {
        "GET": row(READ),
        "PATCH": row(OWN, 200, {"description": "Another"}),
        "DELETE": row(OWN, 204),
    },
    "fleet:public-link-list": {"GET": row(OWN), "POST": row(OWN, 201, {"name": "another"})},
    "fleet:public-link-detail": {"DELETE": row(OWN, 204)},
    "fleet:agent-audit": {"GET": row(OWN)},
    "fleet:audit-list": {"GET": row(SUPERUSER)},
    "fleet:share-list": {"GET": row(OWN), "POST": row(OWN, 201, {"username": "sten"})},
    "fleet:share-detail": {"DELETE": row(OWN, 204)},
    "fleet:agent-key-list": {"GET": row(OWN), "POST": row(OWN, 201, {"name": "new"})},
    "fleet:agent-key-detail": {"DELETE": row(OWN, 204)},
    "fleet:key-list": {"GET": row(PERSON), "POST": row(PERSON, 201, {"name": "new"})},
    "fleet:key-detail": {
        "DELETE": row(PERSON, (404, "key_not_found"), but=_each(OWNERS, (204, None)), at=lambda cast: {"key_id": cast.owner_key.pk}),
    },
    # -- Tasks and executions --------------------------------------------------------------------------------------------
    "runtime:task-submit": {"POST": row(SUBMIT, 202, TASK)},
    # Nobody runs it here, and the test's client can't be held.
    "runtime:chat-turn": {"POST": row(SUBMIT, (504, "wait_timeout"), {"message": "hello"})},
    # Others wait for the slot, and whoever has a link never does.
    "runtime:public-chat": {"POST": row(PUBLIC, (429, "at_capacity"), TASK)},
    "runtime:public-execution": {"GET": row(PUBLIC, at=lambda cast: {"execution_id": cast.by_link.pk})},
    "runtime:internal-execute-task": {
        "POST": row(SYSTEM, 202, lambda cast: TASK | {"agent_name": cast.agent.name, "triggered_by": "schedule"})
    },
    "runtime:schedule-list": {"GET": row(READ), "POST": row(OWN, 201, SCHEDULE)},
    "runtime:schedule-detail": {"GET": row(READ), "PATCH": row(OWN, 200, {"enabled": False}), "DELETE": row(OWN, 204)},
    "runtime:schedule-run": {"POST": row(OWN, 202, {})},
    "runtime:firing-list": {"GET": row(READ)},
    "runtime:execution-list": {"GET": row(SIGNED_IN)},
    "runtime:timeline-list": {"GET": row(SIGNED_IN)},
    "runtime:execution-detail": {"GET": row(READ)},
    "runtime:event-list": {"GET": row(READ)},
    "runtime:execution-cancel": {"POST": row(CANCEL, 200, {})},
    "runtime:execution-cancel-many": {"POST": row(SIGNED_IN, 200, {"status": ["queued"]})},
    "runtime:execution-retry-many": {"POST": row(SIGNED_IN, 200, {"status": ["failed"]})},
    "runtime:execution-retry": {"POST": row(SUBMIT, 202, {}, at=lambda cast: {"execution_id": cast.ended.pk})},
    "runtime:agent-execution-list": {"GET": row(READ)},
    "runtime:agent-execution-detail": {"GET": row(READ)},
    "runtime:agent-event-list": {"GET": row(READ)},
    "runtime:agent-execution-cancel": {"POST": row(CANCEL, 200, {})},
    "runtime:agent-execution-retry": {"POST": row(SUBMIT, 202, {}, at=lambda cast: {"execution_id": cast.ended.pk})},
    "runtime:queue-detail": {"GET": row(READ)},
    # -- Capacity and controls -------------------------------------------------------------------------------------------
    "runtime:slots-list": {"GET": row(SIGNED_IN)},
    "runtime:capacity-detail": {"GET": row(READ), "PUT": row(CHANGE, 200, {"max_parallel_tasks": 4})},
    "runtime:ceiling-detail": {"GET": row(SIGNED_IN), "PUT": row(SUPERUSER, 200, {"value": 9})},
    "runtime:cap-detail": {"GET": row(SIGNED_IN), "PUT": row(SUPERUSER, 200, {"value": 5})},
    "runtime:agent-pause": {"POST": row(OWN, 200, {})},
    "runtime:agent-resume": {"POST": row(OWN, 200, {})},
    "runtime:queue-clear": {"POST": row(OWN, 200, {})},
    "runtime:slot-release": {"POST": row(OWN, 200, lambda cast: {"execution_id": str(cast.ended.pk)})},
    "runtime:fleet-pause": {"POST": row(SUPERUSER, 200, {})},
    "runtime:fleet-resume": {"POST": row(SUPERUSER, 200, {})},
    "runtime:agent-what-if": {"GET": row(READ)},
    # -- The API about itself, and for its pages -------------------------------------------------------------------------
    "schema": {"GET": row(PUBLIC, by=("nobody", "nonsense token"))},  # half a second each
    "docs": {"GET": row(PUBLIC)},
    "live:ws-ticket": {"POST": row(SIGNED_IN, 200, {})},
    "live:agent-badge": {"GET": row(OWN), "POST": row(OWN, 201, {}), "DELETE": row(OWN, 204)},
    "readyz": {"GET": row(PUBLIC)},
    # -- Pages -----------------------------------------------------------------------------------------------------------
    "frontend:dashboard": {"GET": row(PAGE)},
    "frontend:oldest-wait": {"GET": row(PAGE)},
    # Shown to everybody who has its key; this one is none.
    "frontend:badge": {"GET": row(PUBLIC, 404)},
    "frontend:login": {
        "GET": row(PUBLIC, 200, but={who: (302, None) for who in WHO if "browser" in who}),
        "POST": row(
            PUBLIC,
            200,
            {"username": "nobody", "password": "wrong"},
            form=True,
            but={"owner's browser": (302, None), "stranger's browser": (302, None)},
        ),
    },
    "frontend:logout": {"POST": row(PUBLIC, 302, {}, form=True)},
    "frontend:account": {"GET": row(PAGE), "POST": row(PAGE, 200, {}, form=True)},
    "frontend:account-changed": {"GET": row(PAGE)},
    "frontend:account-key-create": {"POST": row(PAGE, 200, {"name": "new"}, form=True)},
    "frontend:account-key-revoke": {
        method: row(PAGE, ok, form=True, but=_each(("stranger's browser",), (404, None)), at=lambda cast: {"key_id": cast.owner_key.pk})
        for method, ok in (("GET", 200), ("POST", 302))
    },
    "frontend:agent-list": {"GET": row(PAGE)},
    "frontend:agent-detail": {"GET": row(AGENT_PAGE)},
    "frontend:execution-list": {"GET": row(PAGE)},
    "frontend:execution-rows": {"GET": row(PAGE)},
    "frontend:execution-detail": {"GET": row(AGENT_PAGE)},
    "frontend:execution-work": {"GET": row(AGENT_PAGE)},
    "frontend:agent-work": {"GET": row(AGENT_PAGE)},
}
