"""A port that is free, and an address that stays."""

import socket
import stat
from pathlib import Path

from workers.embedded.ports import free_port, is_free, keep_address, listening


def listener() -> socket.socket:
    """A socket that listens on a port of the kernel's choice."""
    return socket.create_server(("127.0.0.1", 0))


def test_a_port_with_a_listener_is_not_free() -> None:
    with listener() as taken:
        assert not is_free(taken.getsockname()[1])


def test_a_free_port_can_be_bound() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as bound:
        assert listening(bound.getsockname()[1])()


def test_nothing_listens_on_a_free_port() -> None:
    assert not listening(free_port())()


def test_a_free_port_lies_below_those_that_linux_lends_to_outgoing_connections() -> None:
    assert all(free_port() < 32_768 for _ in range(20))


def test_an_address_stays_from_one_start_to_the_next(tmp_path: Path) -> None:
    first = keep_address(tmp_path / "address.json")
    assert keep_address(tmp_path / "address.json") == first


def test_a_port_that_was_taken_meanwhile_is_replaced_and_the_password_stays(tmp_path: Path) -> None:
    first = keep_address(tmp_path / "address.json")
    with socket.create_server(("127.0.0.1", first.port)):
        second = keep_address(tmp_path / "address.json")
    assert (second.port != first.port, second.password) == (True, first.password)


def test_only_we_may_read_the_password(tmp_path: Path) -> None:
    keep_address(tmp_path / "address.json")
    assert stat.S_IMODE((tmp_path / "address.json").stat().st_mode) == 0o600


def test_the_password_does_not_show_when_an_address_is_printed(tmp_path: Path) -> None:
    address = keep_address(tmp_path / "address.json")
    assert address.password not in repr(address)
