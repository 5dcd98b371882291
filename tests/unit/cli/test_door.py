from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from workers.access import Access, read_access, write_access
from workers.cli.door import NoDoor, open_client

OURS = Access(url="http://127.0.0.1:8642", metrics_url="http://127.0.0.1:8643", api_key="srk_ours", redis_url="redis://:secret@h/0")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that the environment names, and nothing else."""
    monkeypatch.setenv("SECONDREAD_STATE_DIR", str(tmp_path))
    for name in ("URL", "API_KEY"):
        monkeypatch.delenv(f"SECONDREAD_{name}", raising=False)
    return tmp_path


def key_of(client: object) -> str:
    header: str = client._http.headers["Authorization"]  # type: ignore[attr-defined]
    return header.removeprefix("Bearer ")


def test_without_options_it_is_this_machines_own_door(state: Path) -> None:
    write_access(state, OURS)
    with open_client(None, None) as client:
        assert (client.url, key_of(client)) == (OURS.url, "srk_ours")


def test_the_environment_names_another_door(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_access(state, OURS)
    monkeypatch.setenv("SECONDREAD_URL", "https://reads.example/")
    monkeypatch.setenv("SECONDREAD_API_KEY", "srk_theirs")
    with open_client(None, None) as client:
        assert (client.url, key_of(client)) == ("https://reads.example", "srk_theirs")


def test_options_come_before_the_environment(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECONDREAD_URL", "https://reads.example")
    with open_client("https://other.example", "srk_other") as client:
        assert (client.url, key_of(client)) == ("https://other.example", "srk_other")


def test_our_own_key_is_never_sent_to_a_stranger(state: Path) -> None:
    write_access(state, OURS)
    with pytest.raises(NoDoor):
        open_client("https://reads.example", None)


def test_our_own_door_named_by_its_address_is_opened_with_our_own_key(state: Path) -> None:
    write_access(state, OURS)
    with open_client(OURS.url + "/", None) as client:
        assert key_of(client) == "srk_ours"


def test_where_nothing_ever_ran_the_user_is_told_to_start_it(secondread: Callable[..., Result]) -> None:
    answered = secondread("list")
    assert answered.exit_code == 1
    assert "`secondread up`" in answered.stderr


def test_where_nobody_listens_any_more_the_user_is_told_to_start_it(secondread: Callable[..., Result], tmp_path: Path) -> None:
    write_access(tmp_path / "state", OURS.model_copy(update={"url": "http://127.0.0.1:1"}))
    answered = secondread("list")
    assert answered.exit_code == 1
    assert "Nobody answers at http://127.0.0.1:1. Start everything" in answered.stderr


def test_the_access_file_is_private_and_its_secrets_stay_out_of_logs(state: Path) -> None:
    write_access(state, OURS)
    assert (state / "access.json").stat().st_mode & 0o077 == 0
    assert "srk_ours" not in repr(OURS)
    assert "secret" not in repr(OURS)


def test_an_access_file_of_an_older_version_is_still_read(state: Path) -> None:
    (state / "access.json").write_text('{"url": "http://h:1", "metrics_url": "http://h:2", "api_key": "srk_old"}')
    access = read_access(state)
    assert access is not None
    assert (access.api_key, access.redis_url) == ("srk_old", None)
