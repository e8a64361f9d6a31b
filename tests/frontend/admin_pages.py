"""What the tests of the admin share: signing in, pressing buttons, reading what is said."""

import re
from html import unescape
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

AGENTS = "/admin/fleet/agent/"
EXECUTIONS = "/admin/backlog/execution/"
AUDIT = "/admin/fleet/auditentry/"
SHARES = "/admin/fleet/share/"


def signed_in(user: User) -> Client:
    """A browser in which the user is signed in."""
    client = Client()
    client.force_login(user)
    return client


def act(client: Client, path: str, action: str, *rows: Any, **fields: Any) -> HttpResponse:
    """The page that follows on the action with these rows, as a browser would show it."""
    return client.post(path, {"action": action, "_selected_action": [getattr(row, "pk", row) for row in rows], **fields}, follow=True)


def confirm(client: Client, path: str, action: str, *rows: Any) -> list[str]:
    """What is said once the action is confirmed."""
    return said(act(client, path, action, *rows, confirmed="yes"))


def said(answer: HttpResponse) -> list[str]:
    """The messages on the page."""
    found = re.findall(r'<li class="(?:success|error|warning|info)">(.*?)</li>', answer.text, re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", text)).strip() for text in found]


def listed(answer: HttpResponse) -> int:
    """How many rows the list has."""
    return answer.text.count('class="action-select"') or len(re.findall(r'<tr><th class="field-', answer.text))
