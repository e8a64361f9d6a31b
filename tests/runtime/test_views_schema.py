"""The API's contract, as it is served."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

from django.core.management import call_command
from django.urls import get_resolver
from django.urls.resolvers import URLPattern, URLResolver
from drf_spectacular.generators import SchemaGenerator

from frontend import openapi


def test_the_schema_is_valid_and_without_a_warning(tmp_path):
    file = tmp_path / "schema.yaml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(file))
    assert file.stat().st_size > 1000


def test_everybody_reads_the_schema_as_json(api):
    answer = api(None).get("/api/schema", headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    schema = answer.json()
    assert schema["openapi"] == "3.1.0"
    assert set(schema["components"]["securitySchemes"]) == {"bearer", "browser"}
    assert "application/problem+json" in schema["paths"]["/api/agents/{name}/task"]["post"]["responses"]["429"]["content"]


def test_of_any_number_who_ask_a_new_process_one_makes_the_document(client, monkeypatch):
    generate, made, together = SchemaGenerator.get_schema, [], threading.Barrier(4)

    def counted(generator, **asked):
        made.append(asked)
        return generate(generator, **asked)

    def ask(number):
        together.wait(10)
        return client.get(f"/api/schema/?version={number}")

    monkeypatch.setattr(SchemaGenerator, "get_schema", counted)
    monkeypatch.setattr(openapi.OneDocument, "_made", None)
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(made) == 1


def test_every_endpoint_is_in_the_schema_once(api):
    shown = set(api(None).get("/api/schema/").json()["paths"])
    named = {route for route in routes(get_resolver()) if route.startswith("/api/") and route not in {"/api/schema/", "/api/docs/"}}
    assert shown == named


def routes(resolver: URLResolver, prefix: str = "/") -> set[str]:
    """The named paths below `resolver`, as the schema writes them."""
    found: set[str] = set()
    for entry in resolver.url_patterns:
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(entry.pattern))
        if isinstance(entry, URLPattern):
            found |= {path} if entry.name else set()
        else:
            found |= routes(entry, path)
    return found


def test_the_page_of_the_docs_has_nothing_inline(api):
    answer = api(None).get("/api/docs/")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "'unsafe" not in answer["Content-Security-Policy"]
    assert not re.search(r"<style|style=|<script>|https?://", page)
    script = api(None).get(re.findall(r'<script src="([^"]+)"', page)[-1])
    assert (script.status_code, script["Content-Type"].split(";")[0]) == (200, "application/javascript")
    assert "/api/schema" in script.content.decode()
