"""Pages of other origins that read the API from a browser."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from capacity.manager import CapacityManager
from fleet import tokens
from fleet.models import Agent

pytestmark = pytest.mark.usefixtures("valkey", "db")

ORIGIN = "https://status.example"
SLOTS = "/api/agents/slots"


@pytest.fixture(autouse=True)
def origins(settings: Any) -> None:
    """One other origin may; written with a slash, as people do."""
    settings.TRINITY_CORS_ORIGINS = (f"{ORIGIN}/",)


def asked(client: Client, path: str, origin: str, method: str = "GET", headers: str = "authorization") -> dict[str, str]:
    """What a browser is told before it asks."""
    wanted = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    answer = client.options(path, headers={"Origin": origin, **wanted})
    return dict(answer.headers) | {"status": str(answer.status_code)}


@pytest.mark.parametrize("path", [SLOTS, f"{SLOTS}/", "/api/ws-ticket", "/api/token/", "/api/no-such-path"])
def test_a_page_of_a_named_origin_may_ask_with_a_token_of_its_own(client: Client, path: str) -> None:
    told = asked(client, path, ORIGIN, method="POST", headers="authorization, content-type, if-none-match")
    assert told["status"] == "204"
    assert told["Access-Control-Allow-Origin"] == ORIGIN
    assert "POST" in told["Access-Control-Allow-Methods"]
    assert {"authorization", "content-type", "if-none-match", "idempotency-key"} <= set(
        told["Access-Control-Allow-Headers"].lower().split(", ")
    )
    assert "Origin" in told["Vary"]
    assert "Access-Control-Allow-Credentials" not in told


@pytest.mark.parametrize(
    "origin", ["https://other.example", "http://status.example", "https://status.example:8443", "null", f"{ORIGIN}.evil.example"]
)
def test_a_page_of_another_origin_is_told_nothing(client: Client, owner: User, origin: str) -> None:
    assert not [name for name in asked(client, SLOTS, origin) if name.startswith("Access-Control")]
    headers = {"Origin": origin, "Authorization": f"Bearer {tokens.issue(owner).access}"}
    answer = client.get(SLOTS, headers=headers)
    assert not [name for name in answer.headers if name.startswith("Access-Control")]
    # A cache between them must not hand one page's answer to another.
    assert "Origin" in answer["Vary"]


def test_its_meters_come_with_their_tag_and_so_do_refusals(client: Client, owner: User, agent: Agent) -> None:
    CapacityManager().refill()
    bearer = {"Origin": ORIGIN, "Authorization": f"Bearer {tokens.issue(owner).access}"}
    whole = client.get(SLOTS, headers=bearer)
    assert whole["Access-Control-Allow-Origin"] == ORIGIN
    assert "ETag" in whole["Access-Control-Expose-Headers"]
    assert agent.name in whole.json()["agents"]
    known = client.get(SLOTS, headers=bearer | {"If-None-Match": whole["ETag"]})
    assert (known.status_code, known["Access-Control-Allow-Origin"]) == (304, ORIGIN)
    refused = client.get(SLOTS, headers={"Origin": ORIGIN})
    assert (refused.status_code, refused["Access-Control-Allow-Origin"]) == (401, ORIGIN)


def test_nothing_but_the_api_is_opened(client: Client) -> None:
    for path in ("/login/", "/agents/", "/livez"):
        answer = client.get(path, headers={"Origin": ORIGIN})
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
