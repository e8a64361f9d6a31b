"""The embedded store, and what the fixtures promise of it."""

import stat
from pathlib import Path

import pytest
import redis

from core.embedded_store import EmbeddedStore, StoreServerMissing, free_port, server_program


def test_the_store_keeps_nothing_on_disk(valkey: redis.Redis) -> None:
    valkey.set("some", "value", ex=60)
    assert valkey.config_get("save")["save"] == ""
    assert valkey.config_get("appendonly")["appendonly"] == "no"
    assert valkey.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_the_password_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    store = EmbeddedStore(program="server", directory=tmp_path / "a place", port=free_port(), password="secret")
    program, file = store.argv()
    assert program == "server"
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert "requirepass secret" in Path(file).read_text()


def test_a_machine_without_a_server_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.embedded_store.installed_program", lambda: None)
    monkeypatch.setattr("core.embedded_store.packaged_program", lambda: None)
    with pytest.raises(StoreServerMissing, match="install the valkey-server or redis-server package, or set REDIS_URL"):
        server_program()
