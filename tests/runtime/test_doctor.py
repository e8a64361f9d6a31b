"""`manage.py doctor` and its checks, each shown the real thing gone wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from pytest_django import Settings

from capacity import keys
from capacity.checkup import check_slot_store
from capacity.manager import CapacityManager
from core.checkup import Finding, State, clocks, configuration, examine, libraries
from core.checkup.database import check_database
from core.checkup.findings import worst
from core.embedded_store import free_port, packaged_program, server_program
from core.tether import tethered
from fleet.models import Agent, FleetSettings
from runtime import heartbeat
from runtime.checkup import check_broker, check_workers
from tests import waiting
from tests.stores import OwnStore

pytestmark = pytest.mark.flows

ROOT = Path(__file__).parents[2]
LIBRARY = next((str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
Report = dict[str, Finding]


def by_name(findings: Iterable[Finding]) -> Report:
    return {finding.name: finding for finding in findings}


def not_ok(report: Report) -> dict[str, State]:
    return {name: finding.state for name, finding in report.items() if finding.state is not State.OK}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OwnStore]:
    """A store of the test's own, running."""
    own = OwnStore(tmp_path)
    own.start()
    yield own
    own.kill()


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`manage("doctor", "--json", NAME=value)` in a data directory of its own, with nothing of this process's settings."""

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        ours = ("TRINITY_", "REDIS_URL", "DATABASE_URL", "DJANGO_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env = inherited | {"TRINITY_DATA_DIR": str(tmp_path / "data")} | env
        argv = [sys.executable, "manage.py", *arguments]
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture
def report(manage: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., tuple[int, Report]]:
    """The exit code and the findings of the command."""

    def run(**env: str) -> tuple[int, Report]:
        told = manage("doctor", "--json", **env)
        assert "Traceback" not in told.stderr, told.stderr
        findings = [Finding(**(one | {"state": State(one["state"])})) for one in json.loads(told.stdout)["findings"]]
        return told.returncode, by_name(findings)

    return run


# -- The command -------------------------------------------------------------------------------------------------------


def test_with_nothing_there_it_names_all_that_is_missing_and_fails(report: Callable[..., tuple[int, Report]]) -> None:
    away = f"redis://:secret@127.0.0.1:{free_port()}/0"
    code, found = report(REDIS_URL=away)
    assert code == 1
    assert not_ok(found) == {"database": "fail", "slot store": "fail", "broker": "fail", "workers": "warn"}
    assert found["database"].mend == "manage.py migrate"
    assert found["slot store"].mend == "Start it, or set REDIS_URL to where it is"
    assert found["broker"].mend == "Start it, or set CELERY_BROKER_URL to where it is"
    assert all("secret@" not in finding.seen for finding in found.values())


def test_a_database_that_is_migrated_in_part_is_a_failure(
    manage: Callable[..., subprocess.CompletedProcess[str]], report: Callable[..., tuple[int, Report]], store: OwnStore
) -> None:
    assert manage("migrate", "fleet", REDIS_URL=store.url).returncode == 0
    code, found = report(REDIS_URL=store.url)
    assert code == 1
    assert found["database"].state is State.OK
    assert found["migrations"].state is State.FAIL
    assert found["migrations"].seen.endswith(" not applied, of admin, auth, backlog, contenttypes, runtime, sessions")
    assert found["migrations"].mend == "manage.py migrate"
    assert found["workers"].state is State.FAIL
    assert found["workers"].seen == "None is alive: nothing starts"
    assert "celery -A trinity worker" in found["workers"].mend


def test_a_host_whose_clock_is_off_is_told_so(report: Callable[..., tuple[int, Report]], store: OwnStore) -> None:
    if LIBRARY is None:
        pytest.skip("No libfaketime found: install the faketime package")
    _, found = report(REDIS_URL=store.url, LD_PRELOAD=LIBRARY, FAKETIME="+3600s", FAKETIME_DONT_FAKE_MONOTONIC="1")
    clock = found["slot store clock"]
    assert clock.state is State.FAIL
    assert 3590 < float(clock.seen.partition(" ")[0]) <= 3601
    assert clock.seen.endswith("behind this host's")
    assert clock.mend == clocks.SYNCHRONIZE


def test_it_tells_people_in_lines_what_it_tells_programs(manage: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    told = manage("doctor", REDIS_URL=f"redis://127.0.0.1:{free_port()}", TRINITY_LEASE_SECOND="60")
    lines = told.stdout.splitlines()
    assert told.returncode == 1
    assert "warn  environment             Read by nobody: TRINITY_LEASE_SECOND" in lines
    assert lines[lines.index("warn  environment             Read by nobody: TRINITY_LEASE_SECOND") + 1].strip() == (
        "→ did you mean TRINITY_LEASE_SECONDS?"
    )


# -- The slot store ----------------------------------------------------------------------------------------------------


def test_a_store_as_it_should_be_is_found_well(store: OwnStore) -> None:
    found = by_name(check_slot_store(store.url))
    assert not_ok(found) == {"slots": "warn"}
    assert found["slots"].mend == "Start a worker, or manage.py housekeep"


def test_a_store_that_evicts_keys_is_a_failure(store: OwnStore) -> None:
    with store.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "64mb")
    memory = by_name(check_slot_store(store.url))["slot store memory"]
    assert memory.state is State.FAIL
    assert memory.seen.startswith("allkeys-lru, ")
    assert memory.mend == "CONFIG SET maxmemory-policy noeviction, and in redis.conf"


def test_a_store_that_is_nearly_full_is_told_of(store: OwnStore) -> None:
    with store.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"])
    assert by_name(check_slot_store(store.url))["slot store memory"].mend == "Raise maxmemory"


def test_a_store_with_no_room_for_another_process_is_told_of(store: OwnStore) -> None:
    with store.client() as client:
        client.config_set("maxclients", 30)
    clients = by_name(check_slot_store(store.url))["slot store clients"]
    assert (clients.state, clients.mend) == (State.WARN, "Raise maxclients, and the server's limit of open files")


def test_a_cluster_is_a_failure(tmp_path: Path) -> None:
    port = free_port()
    argv = [packaged_program() or server_program(), "--port", str(port), "--cluster-enabled", "yes", "--save", "", "--dir", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(tethered(argv), stdout=log, stderr=log) as cluster:
        try:
            found = waiting.until(lambda: _answering(check_slot_store(f"redis://127.0.0.1:{port}/0")))
        finally:
            cluster.kill()
    assert found.state is State.FAIL
    assert found.mend == "Use a single server: a script touches keys of several hash slots"


def _answering(findings: Iterable[Finding]) -> Finding | None:
    found = by_name(findings)["slot store"]
    return None if "out of reach" in found.seen else found


def test_a_user_who_may_not_run_scripts_is_found(store: OwnStore) -> None:
    with store.client() as client:
        client.execute_command("ACL", "SETUSER", "weak", "on", ">weak", "~*", "+@all", "-@scripting")
    scripts = by_name(check_slot_store(store.url.replace(":secret@", "weak:weak@")))["slot store scripts"]
    assert scripts.state is State.FAIL
    assert "weak" not in scripts.mend


def test_a_store_that_is_frozen_is_out_of_reach_within_its_time(store: OwnStore) -> None:
    assert store._process is not None
    store._process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    found = by_name(check_slot_store(store.url))
    assert time.monotonic() - began < 8
    assert found["slot store"].state is State.FAIL
    store._process.send_signal(signal.SIGCONT)


@pytest.mark.django_db(transaction=True)
def test_an_emptied_store_waits_for_its_slots_until_it_is_filled(valkey: redis.Redis) -> None:
    assert by_name(check_slot_store())["slots"].state is State.WARN
    CapacityManager().refill()
    assert valkey.exists(keys.epoch())
    assert by_name(check_slot_store())["slots"] == Finding(name="slots", state=State.OK, seen="Open")


# -- The database ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_database_as_it_should_be_is_found_well() -> None:
    assert not_ok(by_name(check_database())) == {}


@pytest.mark.django_db
def test_a_file_that_is_no_database_is_a_failure_and_stays_as_it_is(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "db.sqlite3"
    file.write_text("not a database " * 100)
    described = settings.DATABASES["default"] | {"ENGINE": "core.sqlite3", "NAME": str(file), "OPTIONS": {}}
    assert not_ok(by_name(check_database(described))) == {"database": "fail"}
    assert file.read_text() == "not a database " * 100


@pytest.mark.django_db
def test_a_database_out_of_reach_is_a_failure(settings: Settings) -> None:
    away = {"ENGINE": "django.db.backends.postgresql", "NAME": "trinity", "HOST": "127.0.0.1", "PORT": free_port(), "OPTIONS": {"pool": {}}}
    database = by_name(check_database(settings.DATABASES["default"] | away))["database"]
    assert (database.state, database.mend) == (State.FAIL, "Start the database, or set DATABASE_URL to where it is")


# -- Broker and workers ------------------------------------------------------------------------------------------------


def test_a_broker_at_a_closed_port_is_a_failure_that_keeps_the_password() -> None:
    port = free_port()
    for url in (f"redis://:secret@127.0.0.1:{port}/0", f"amqp://user:secret@127.0.0.1:{port}//"):
        began = time.monotonic()
        (broker,) = check_broker(Celery(broker=url))
        assert time.monotonic() - began < 8
        assert broker.state is State.FAIL
        assert broker.seen.startswith(f"{url.partition(':')[0]}://127.0.0.1:{port} is out of reach: ")
        assert "secret" not in broker.seen


@pytest.mark.django_db(transaction=True)
def test_fewer_threads_than_slots_are_told_of_unless_the_fleets_cap_is_lower(valkey: redis.Redis, make_agent: Callable[..., Agent]) -> None:
    make_agent(limit=3)
    make_agent(limit=5)
    heartbeat.beat(threads=7)
    found = by_name(check_workers())
    assert found["workers"].seen == "1 on 1 hosts, 7 threads"
    assert found["threads"].seen == "7 for 8 slots: granted work may wait for a thread while it holds its slot"
    assert found["threads"].mend.endswith("1 more threads are needed")
    FleetSettings.objects.update_or_create(pk=1, defaults={"max_concurrent_tasks": 7})
    assert not_ok(by_name(check_workers())) == {}
    heartbeat.stop()
    assert by_name(check_workers())["workers"].state is State.FAIL


@pytest.mark.django_db(transaction=True)
def test_workers_that_can_not_be_seen_are_not_said_to_be_gone(store_out_of_reach: Callable[[bool], None]) -> None:
    store_out_of_reach(True)
    heartbeat.beat(threads=1)
    assert not_ok(by_name(check_workers())) == {"workers": "warn"}


# -- Settings and libraries --------------------------------------------------------------------------------------------


def test_names_that_nobody_reads_are_told_with_what_was_meant() -> None:
    env = {"TRINITY_LEASE_SECS": "1", "TRINITY_NONSENSE_XYZ": "1", "ALLOWED_HOST": "a", "TRINITY_WEB_THREADS": "4", "PATH": "/bin"}
    found = configuration.unknown_variables(env)
    assert found.seen == "Read by nobody: ALLOWED_HOST, TRINITY_LEASE_SECS, TRINITY_NONSENSE_XYZ"
    assert found.mend == "did you mean ALLOWED_HOSTS?; did you mean TRINITY_LEASE_SECONDS?; unset TRINITY_NONSENSE_XYZ"


def test_every_variable_that_is_documented_is_known() -> None:
    lines = (ROOT / "docs" / "settings.md").read_text().splitlines()
    documented = {line.split("`")[1] for line in lines if line.startswith("| `") and not line.startswith("| `TEST_")}
    assert configuration.unknown_variables(dict.fromkeys(documented, "")).state is State.OK
    assert set(configuration.OTHERS) <= documented


@pytest.mark.parametrize(
    ("name", "changes", "state"),
    [
        ("debug", {"DEBUG": True}, State.WARN),
        ("debug", {"DEBUG": True, "ALLOWED_HOSTS": ["trinity.example"]}, State.FAIL),
        ("secrets", {"SECRET_KEY": "short"}, State.WARN),
        ("hosts", {"ALLOWED_HOSTS": ["*"]}, State.WARN),
        ("hosts", {"ALLOWED_HOSTS": []}, State.FAIL),
        ("hosts", {"ALLOWED_HOSTS": ["trinity.example"]}, State.WARN),
        ("origins", {"TRINITY_WS_ORIGINS": ("https://*.example",)}, State.FAIL),
        ("origins", {"TRINITY_CORS_ORIGINS": ("trinity.example",)}, State.FAIL),
        ("content security policy", {"SECURE_CSP": {"default-src": ["'self'", "'unsafe-inline'"]}}, State.WARN),
        ("content security policy", {"MIDDLEWARE": []}, State.FAIL),
        ("leases", {"TRINITY_LEASE_SECONDS": 30}, State.WARN),
    ],
)
def test_settings_that_are_not_fit_for_the_public_are_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, changes: dict[str, Any], state: State
) -> None:
    for secret in ("SECRET_KEY", "TRINITY_ENCRYPTION_KEY"):
        monkeypatch.setenv(secret, "given")
    settings.DEBUG = False
    assert by_name(configuration.check_configuration())[name].state is State.OK
    for setting, value in changes.items():
        setattr(settings, setting, value)
    found = by_name(configuration.check_configuration())[name]
    assert (found.state, bool(found.mend)) == (state, True)


def test_a_library_of_another_version_than_the_tested_is_told(tmp_path: Path) -> None:
    assert not_ok(by_name(libraries.check_libraries())) == {}
    other = tmp_path / "constraints.txt"
    shutil.copy(ROOT / "constraints.txt", other)
    other.write_text(other.read_text().replace("\nhttpx==", "\nhttpx==9."))
    found = by_name(libraries.check_libraries(other))["libraries"]
    assert (found.state, found.mend) == (State.WARN, libraries.INSTALL)
    assert found.seen.startswith("httpx ")


# -- Checks themselves -------------------------------------------------------------------------------------------------


def test_a_check_that_breaks_or_hangs_is_a_failure_and_the_others_are_heard() -> None:
    def well() -> Iterator[Finding]:
        yield Finding(name="well", state=State.OK, seen="fine")

    def broken() -> Iterator[Finding]:
        raise RuntimeError("over\nthere")

    def hanging() -> Iterator[Finding]:
        signal.pause()
        yield from well()

    began = time.monotonic()
    found = list(examine({"hanging": hanging, "broken": broken, "well": well}, seconds=0.3))
    assert time.monotonic() - began < 5
    assert [(one.name, one.seen) for one in found] == [
        ("hanging", "No answer within 0.3 s"), ("broken", "The check broke: over there"), ("well", "fine"),
    ]  # fmt: skip
    assert worst(found) is State.FAIL


@pytest.mark.parametrize(
    ("theirs", "state"), [(999.0, State.OK), (1001.5, State.OK), (1004.0, State.WARN), (995.0, State.WARN), (900.0, State.FAIL)]
)
def test_clocks_are_compared_within_the_time_that_asking_took(theirs: float, state: State) -> None:
    assert clocks.compared("clock", theirs=theirs, before=1000.0, after=1001.0).state is state
