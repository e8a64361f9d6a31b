"""What comes by public links: the same door as every task's, for callers who are nobody."""

import uuid

from backlog import selectors as rows
from backlog.errors import CapacityFull
from backlog.models import Execution, Trigger
from capacity.gate import gated
from core.errors import NotFound
from fleet.models import Agent, OnFull, PublicLink
from fleet.principals import PUBLIC, Source
from fleet.public_links import usable_link

from .submit import Sender, Submitted, TaskRequest, submit_as


def link_of(token: str) -> PublicLink:
    """The link; raises `NotFound` where there is none of this token, or none any more."""
    link = usable_link(token)
    if link is None:
        raise NotFound
    return link


def say(*, link: PublicLink, message: str) -> Submitted:
    """The message, accepted: it holds a slot. Raises the refusals of `capacity.errors` without their figures, and `NotFound`."""
    agents = rows.with_key_known(gated(Agent.objects.filter(pk=link.agent_id, deleted_at=None)), asked=None)
    agent = agents.first()
    if agent is None:
        raise NotFound
    sender = Sender(source=Source(PUBLIC, link.name), public_link_id=link.pk)
    request = TaskRequest(message=message, on_full=OnFull.REJECT, triggered_by=Trigger.PUBLIC)
    try:
        return submit_as(sender=sender, agent=agent, request=request)
    except CapacityFull as full:
        # The sentence is the same for everybody; how full the line is, is for those who may see the agent.
        full.data.clear()
        raise


def execution_by(*, link: PublicLink, execution_id: uuid.UUID) -> Execution:
    """The execution that came by this link; raises `NotFound` for any other."""
    row = Execution.objects.filter(pk=execution_id, public_link=link).first()
    if row is None:
        raise NotFound
    return row
