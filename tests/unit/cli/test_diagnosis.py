import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from workers.cli.diagnosis.machine import (
    look_at_clock,
    look_at_ports,
    look_at_python,
    look_at_shared_memory,
    look_at_state_folder,
    nearest_folder,
)
from workers.cli.diagnosis.packages import Requirement, look_at_extra, parse_requirements, requirements
from workers.cli.diagnosis.servers import look_at_servers
from workers.settings import Settings

ASKED = [Requirement("celery", "5.7", "server"), Requirement("fastapi", "", "server"), Requirement("httpx", "0.28", "")]


def test_requirements_are_read_as_the_metadata_writes_them() -> None:
    lines = [
        "httpx>=0.28",
        'celery[redis]<5.8,>=5.7; extra == "server"',
        'uvloop>=0.22; sys_platform != "win32" and extra == "server"',
        'python-gdcm; extra == "server"',
        'secondread[server]; extra == "inference"',
    ]
    assert parse_requirements(lines) == [
        Requirement("httpx", "0.28", ""),
        Requirement("celery", "5.7", "server"),
        Requirement("uvloop", "0.22", "server"),
        Requirement("python-gdcm", "", "server"),
    ]


def test_the_installed_product_asks_for_what_the_client_needs() -> None:
    assert {"httpx", "pydantic", "typer", "rich"} <= {each.name for each in requirements() if each.extra == ""}


def test_a_complete_extra_is_good() -> None:
    note = look_at_extra("server", ASKED, needed_for="x", version_of={"celery": "5.7.1", "fastapi": "0.130"}.get)
    assert (note.level, note.sentence) == ("good", "The extra `server` is complete (2 packages).")


def test_a_missing_package_is_named_with_what_to_install() -> None:
    note = look_at_extra("server", ASKED, needed_for="`secondread up`", version_of={"celery": "5.7"}.get)
    assert (note.level, note.sentence) == (
        "missing",
        "The extra `server` lacks fastapi: pip install 'secondread[server]'. `secondread up` needs it.",
    )


@pytest.mark.parametrize(("version", "is_enough"), [("5.7", True), ("5.10.0", True), ("6.0rc1", True), ("5.6.9", False), ("4", False)])
def test_versions_are_compared_by_their_numbers(version: str, is_enough: bool) -> None:
    note = look_at_extra("server", ASKED[:1], needed_for="x", version_of={"celery": version}.get)
    assert (note.level == "good") is is_enough


def test_an_extra_that_nobody_needs_may_be_missing() -> None:
    assert look_at_extra("server", ASKED, needed_for="", version_of=lambda name: None).level == "good"


@pytest.mark.parametrize(("version", "level"), [((3, 10, 9), "missing"), ((3, 11, 0), "good"), ((4, 0, 0), "good")])
def test_python_must_be_new_enough(version: tuple[int, ...], level: str) -> None:
    assert look_at_python(version).level == level


def test_a_tensor_store_larger_than_its_place_is_refused(tmp_path: Path) -> None:
    assert look_at_shared_memory(Settings(tensor_dir=tmp_path, tensor_capacity_bytes=1)).level == "good"
    note = look_at_shared_memory(Settings(tensor_dir=tmp_path, tensor_capacity_bytes=1 << 60))
    assert note.level == "missing"
    assert "SECONDREAD_TENSOR_CAPACITY_BYTES" in note.sentence


def test_a_state_folder_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path: Path) -> None:
    assert nearest_folder(tmp_path / "not" / "yet") == tmp_path
    assert look_at_state_folder(Settings(state_dir=tmp_path / "not" / "yet")).level in {"good", "odd"}
    assert not (tmp_path / "not").exists()


def test_a_port_that_somebody_has_is_missing_unless_we_are_that_somebody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(gateway_port=taken.getsockname()[1], metrics_port=0)
        assert [note.level for note in look_at_ports(settings, is_up=False)] == ["missing"]
        assert list(look_at_ports(settings, is_up=True)) == []


def test_a_clock_before_the_release_is_wrong() -> None:
    assert look_at_clock(datetime(1970, 1, 1, tzinfo=UTC)).level == "missing"
    assert look_at_clock(datetime(2027, 1, 1, tzinfo=UTC)).level == "good"


def test_servers_that_do_not_answer_are_missing_and_their_passwords_stay_secret() -> None:
    notes = list(look_at_servers("redis://:hidden@127.0.0.1:1/0", "postgresql://u:hidden@127.0.0.1:1/d"))
    assert [note.level for note in notes] == ["missing", "missing"]
    assert not any("hidden" in note.sentence for note in notes)
