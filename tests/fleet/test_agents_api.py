"""The endpoints of agents: who sees which, and what a new one may be."""

from typing import Any

import pytest

from fleet.first_values import MAX_CEILING
from fleet.models import Agent, FleetSettings

HTTP = {"kind": "http", "url": "http://127.0.0.1:9000/agent"}
COMMAND = {"kind": "command", "argv": ["/usr/bin/env", "cat"]}
NAME = "name must be 1 to 63 lower-case letters, digits and inner hyphens"
URL = "runtime.url must be an http or https URL without user name, query or fragment"


@pytest.fixture
def create(api, owner):
    client = api(owner)

    def post(client=client, **body: Any):
        return client.post("/api/agents/", {"name": "a-1", "runtime": HTTP} | body, format="json")

    return post


def told(answer) -> tuple[int, str, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def test_new_agent_is_created_read_back_and_listed(api, owner, create):
    answer = create(description=" as sent ", max_backlog_depth=0)
    assert answer.status_code == 201
    assert answer["Location"] == "/api/agents/a-1/"
    body = answer.json()
    created_at = body.pop("created_at")
    assert created_at.endswith("Z")
    assert body == {
        "name": "a-1",
        "description": " as sent ",
        "owner": "olga",
        "runtime": HTTP,
        "tool_servers": [],
        "paused": False,
        "health": "unknown",  # the slot store of this test has not been asked for a slot yet
        "max_parallel_tasks": 3,
        "max_backlog_depth": 0,
        "execution_timeout_seconds": 900,
    }
    for path in ("/api/agents/a-1", "/api/agents/a-1/"):
        assert api(owner).get(path).json() == body | {"created_at": created_at}
    assert api(owner).get("/api/agents/").json() == {"results": [body | {"created_at": created_at}], "next": None, "previous": None}


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "a-b--c", "9-9"])
def test_names_match_their_pattern(name, create):
    assert create(name=name).status_code == 201


@pytest.mark.parametrize("name", ["A", "a_b", "a.b", "-a", "a-", "a b", " a", "a\n", "caf\xe9", "\N{SNOWMAN}", "\uff41"])
def test_other_names_are_refused(name, create):
    assert told(create(name=name)) == (400, "invalid", NAME)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "1 to 63"), ("a" * 64, "1 to 63"), (5, "1 to 63"), (["a"], "1 to 63"), (None, "required"), ("slots", "must not be 'slots'")],
)
def test_what_is_no_name_is_refused(name, sentence, create):
    status, _, detail = told(create(name=name))
    assert status == 400
    assert detail.startswith("name ")
    assert sentence in detail


def test_a_name_is_one_agents_while_it_lives(create, agent):
    assert create().status_code == 201
    assert told(create()) == (409, "agent_exists", "Agent 'a-1' exists already")
    Agent.objects.filter(name="a-1").update(deleted_at=agent.created_at)
    assert create().status_code == 201


def test_unknown_fields_are_refused(create):
    status, code, detail = told(create(slots=3))
    assert (status, code) == (400, "unknown_field")
    assert detail == (
        "Unknown field 'slots'; the valid fields are "
        "name, runtime, description, max_parallel_tasks, max_backlog_depth, execution_timeout_seconds"
    )


@pytest.mark.parametrize(
    ("field", "low", "high"), [("max_parallel_tasks", 1, 10), ("max_backlog_depth", 0, 10_000), ("execution_timeout_seconds", 60, 7200)]
)
def test_settings_are_integers_within_their_bounds(field, low, high, create):
    for number, value in enumerate((low, high)):
        assert create(name=f"a-{number}", **{field: value}).json()[field] == value
    for value in (low - 1, high + 1, float(high), str(high), True, None, {}, []):
        assert told(create(**{field: value})) == (400, "invalid", f"{field} must be an integer between {low} and {high}")


def test_a_new_agent_is_held_to_the_ceiling(create):
    FleetSettings.objects.update(max_parallel_tasks_ceiling=MAX_CEILING)
    assert create(max_parallel_tasks=MAX_CEILING).status_code == 201
    FleetSettings.objects.update(max_parallel_tasks_ceiling=2)
    assert told(create(max_parallel_tasks=3))[2] == "max_parallel_tasks must be an integer between 1 and 2"


class TestRuntimes:
    def test_secrets_are_kept_and_never_shown(self, create, api, superuser):
        http = HTTP | {"headers": {"Authorization": "Bearer hidden-words"}}
        answer = create(runtime=http)
        assert answer.json()["runtime"] == HTTP | {"headers": {"Authorization": None}}
        assert Agent.objects.get(name="a-1").runtime["headers"] == http["headers"]
        command = COMMAND | {"env": {"TOKEN": "hidden-words"}, "cwd": "/"}
        answer = create(client=api(superuser), name="a-2", runtime=command)
        assert answer.json()["runtime"] == COMMAND | {"env": {"TOKEN": None}, "cwd": "/"}
        assert "hidden" not in api(superuser).get("/api/agents/").content.decode()

    def test_secrets_are_encrypted_at_rest(self, create, django_assert_num_queries):
        create(runtime=HTTP | {"headers": {"Authorization": "hidden-words"}})
        from_database = Agent.objects.extra(select={"raw": "fleet_agent.runtime"}).get(name="a-1").raw
        assert "hidden" not in from_database

    def test_commands_are_for_superusers(self, create, api, superuser, make_key):
        refused = (403, "access_denied", "Only superusers can configure command runtimes")
        assert told(create(runtime=COMMAND)) == refused
        assert create(client=api(superuser), name="a-2", runtime=COMMAND).status_code == 201
        assert create(client=api(make_key(superuser, "user").key), name="a-3", runtime=COMMAND).status_code == 201

    @pytest.mark.parametrize(
        "url",
        ["http://a.example", "https://a.example:8443/base/path/", "http://[::1]:9000", "http://127.0.0.1:1/x%20y", "HTTPS://A.example"],
    )
    def test_urls_are_http(self, url, create):
        assert create(runtime={"kind": "http", "url": url}).status_code == 201

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "a.example",
            "//a.example",
            "ftp://a.example",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http://",
            "http:///path",
            "http://:80",
            "http://a.example:99999",
            "http://a.example:x",
            "http://a.example:0",
            "http://[::1",
            "http://me:secret@a.example",
            "http://a.example/?q=1",
            "http://a.example/#top",
            "http://a.example/a b",
            " http://a.example",
            "http://a.example\n",
            "http://a\\b.example",
            "http://caf\xe9.example",
            "http://a.example/" + "x" * 2000,
            5,
            ["http://a.example"],
        ],
    )
    def test_other_urls_are_refused(self, url, create):
        assert told(create(runtime={"kind": "http", "url": url})) == (400, "invalid", URL)

    @pytest.mark.parametrize(
        "host", ["localhost", "127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]", "[fd00::1]", "x.localhost"]
    )
    def test_private_addresses_can_be_forbidden(self, host, create, settings):
        settings.TRINITY_ALLOW_PRIVATE_ADDRESSES = False
        assert told(create(runtime={"kind": "http", "url": f"http://{host}/"}))[2] == "runtime.url must not point at a private address"
        assert create(runtime={"kind": "http", "url": "http://a.example/"}).status_code == 201

    @pytest.mark.parametrize(
        ("runtime", "pointer", "sentence"),
        [
            (None, "/runtime", "runtime is required"),
            ("http", "/runtime", "runtime must be an object with a kind"),
            ([], "/runtime", "runtime must be an object with a kind"),
            ({}, "/runtime/kind", "runtime.kind must be one of http, command"),
            ({"kind": ["http"]}, "/runtime/kind", "runtime.kind must be one of http, command"),
            ({"kind": "telnet"}, "/runtime/kind", "runtime.kind must be one of http, command"),
            ({"kind": "http"}, "/runtime/url", "runtime.url is required"),
            (HTTP | {"argv": []}, "/runtime/argv", "Unknown field 'argv'; the valid fields are kind, url, headers"),
            (HTTP | {"headers": []}, "/runtime/headers", "runtime.headers must be an object of at most 100 texts"),
            (
                HTTP | {"headers": {f"X-{n}": "" for n in range(101)}},
                "/runtime/headers",
                "runtime.headers must be an object of at most 100 texts",
            ),
            (
                # Not each of them: a small body holds a hundred thousand.
                HTTP | {"headers": {f"X-{n}": n for n in range(101)}},
                "/runtime/headers",
                "runtime.headers must be an object of at most 100 texts",
            ),
            (HTTP | {"headers": {"a b": "c"}}, "/runtime/headers", "runtime.headers must not have the name 'a b'"),
            (HTTP | {"headers": {"Host": "c"}}, "/runtime/headers", "runtime.headers must not have the name 'Host'"),
            (HTTP | {"headers": {"A": "b\r\nC: d"}}, "/runtime/headers", "runtime.headers has a value for 'A' that can't be sent"),
            (HTTP | {"headers": {"A": "\u2014"}}, "/runtime/headers", "runtime.headers has a value for 'A' that can't be sent"),
            (HTTP | {"headers": {"A": 5}}, "/runtime/headers/A", "every entry of runtime.headers must be text of 0 to 8192 characters"),
            (HTTP | {"headers": {"A": None}}, "/runtime/headers/A", "every entry of runtime.headers must be text of 0 to 8192 characters"),
            ({"kind": "command"}, "/runtime/argv", "runtime.argv is required"),
            ({"kind": "command", "argv": "cat"}, "/runtime/argv", "runtime.argv must be a list of 1 to 200 entries"),
            ({"kind": "command", "argv": []}, "/runtime/argv", "runtime.argv must be a list of 1 to 200 entries"),
            ({"kind": "command", "argv": [""]}, "/runtime/argv", "runtime.argv must begin with a program"),
            ({"kind": "command", "argv": ["a", 5]}, "/runtime/argv/1", "every entry of runtime.argv must be text of 0 to 32768 characters"),
            (COMMAND | {"cwd": "here"}, "/runtime/cwd", "runtime.cwd must be an absolute path"),
            (COMMAND | {"env": {"A=B": ""}}, "/runtime/env", "runtime.env must not have the name 'A=B'"),
            (COMMAND | {"env": {"TRINITY_AGENT": ""}}, "/runtime/env", "runtime.env must not have the name 'TRINITY_AGENT'"),
        ],
    )
    def test_other_runtimes_are_refused(self, runtime, pointer, sentence, create, api, superuser):
        answer = create(client=api(superuser), runtime=runtime)
        assert told(answer)[::2] == (400, sentence)
        assert answer.json()["errors"][0]["pointer"] == pointer


class TestCallers:
    def test_keys_of_agents_and_the_system_make_none(self, create, api, owner, superuser, agent, make_key):
        sentence = "Only a person can do this; sign in or use your own user key"
        for made in (make_key(owner, "agent", agent=agent), make_key(superuser, "system")):
            assert told(create(client=api(made.key), name="?")) == (403, "person_required", sentence)

    def test_unknown_is_404_and_somebody_elses_403(self, api, agent, stranger):
        assert told(api(stranger).get("/api/agents/nobody/")) == (404, "agent_not_found", "Agent not found")
        assert told(api(stranger).get("/api/agents/caf%C3%A9/")) == (404, "agent_not_found", "Agent not found")
        assert told(api(stranger).get("/api/agents/a%00/")) == (404, "agent_not_found", "Agent not found")
        assert told(api(stranger).get(f"/api/agents/{agent.name}/")) == (403, "access_denied", "Access denied")
        assert api(stranger).get("/api/agents/").json()["results"] == []

    def test_shares_and_superusers_see_it(self, api, agent, friend, superuser):
        for user in (friend, superuser):
            assert api(user).get(f"/api/agents/{agent.name}").json()["name"] == agent.name
            assert [row["name"] for row in api(user).get("/api/agents").json()["results"]] == [agent.name]

    def test_lists_are_paged_by_name(self, api, make_agent, owner):
        for name in ("c", "a", "b"):
            make_agent(name=name)
        first = api(owner).get("/api/agents/?limit=2").json()
        assert [row["name"] for row in first["results"]] == ["a", "b"]
        second = api(owner).get(first["next"]).json()
        assert [row["name"] for row in second["results"]] == ["c"]
        assert [row["name"] for row in api(owner).get(second["previous"]).json()["results"]] == ["a", "b"]

    def test_a_list_takes_two_queries(self, api, make_agent, owner, django_assert_num_queries):
        client = api(owner)
        for _ in range(5):
            make_agent()
        with django_assert_num_queries(2):
            assert len(client.get("/api/agents/").json()["results"]) == 5

    def test_unknown_parameters_are_refused(self, api, owner, agent):
        assert told(api(owner).get("/api/agents/?page=2")) == (
            400,
            "unknown_parameter",
            "Unknown query parameter 'page'; the valid ones are limit, cursor",
        )
        assert told(api(owner).get(f"/api/agents/{agent.name}?a=1"))[:2] == (400, "unknown_parameter")
        assert told(api(owner).get("/api/agents/?limit=0"))[2] == "limit must be an integer between 1 and 200"

    @pytest.mark.parametrize("body", ["[]", "null", "nonsense", '{"a": NaN}', "[" * 100_000])
    def test_a_body_is_a_json_object(self, api, owner, body):
        answer = api(owner).post("/api/agents/", body, content_type="application/json")
        assert told(answer) == (400, "invalid_body", "The request body must be a JSON object")
