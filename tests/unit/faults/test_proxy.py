"""The fault proxy between a plain client and a plain echo server: each knob does what it says, to live connections too."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Fault, FaultProxy, proxy_for

SOON_S = 10.0
"""A slow machine's soon."""
SILENCE_S = 0.3
"""So long nothing may come: what was swallowed never does."""


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65_536):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was reset is what these tests are about."""


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """A proxy before an echo server."""
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with proxy_for(server.server_address[1]) as proxy:
            yield proxy
        server.shutdown()


def connected(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON_S)


def received(client: socket.socket, count: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < count:
        part = client.recv(count - len(data))
        if not part:
            break
        data += part
    return data


def is_silent(client: socket.socket) -> bool:
    """Neither a byte nor an end comes for a while."""
    client.settimeout(SILENCE_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON_S)
    return False


def test_without_a_fault_everything_passes_and_the_end_too(proxy: FaultProxy) -> None:
    sent = bytes(range(256)) * 2000
    with connected(proxy) as client:
        threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
        assert received(client, len(sent)) == sent
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_a_delay_holds_bytes_back_each_way(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        proxy.behave(delay_s=0.2)
        begun = time.monotonic()
        client.sendall(b"abc")
        assert received(client, 3) == b"abc"
        assert time.monotonic() - begun >= 0.4


def test_what_is_swallowed_never_arrives_and_nobody_is_told(proxy: FaultProxy) -> None:
    with connected(proxy) as old:
        old.sendall(b"before")
        assert received(old, 6) == b"before"
        proxy.behave(Fault.SWALLOW)
        old.sendall(b"lost")
        with connected(proxy) as new:
            new.sendall(b"lost as well")
            assert is_silent(old)
            assert is_silent(new)
            proxy.behave()
            # A stream with a hole in it is not resumed, but who connects anew is served.
            old.sendall(b"still lost")
            assert is_silent(old)
        with connected(proxy) as healed:
            healed.sendall(b"after")
            assert received(healed, 5) == b"after"


def test_a_connection_is_cut_after_so_many_bytes(proxy: FaultProxy) -> None:
    proxy.behave(Fault.CUT, cut_after_bytes=5)
    with connected(proxy) as client:
        client.sendall(b"12345")
        with pytest.raises(ConnectionResetError):
            received(client, 6)


def test_of_an_answer_arrives_what_comes_before_the_cut(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        proxy.behave(Fault.CUT, cut_after_bytes=5)
        client.sendall(b"123")
        assert received(client, 3) == b"123"
        client.sendall(b"456")
        with pytest.raises(ConnectionResetError):
            received(client, 1)


def test_bytes_drip_one_by_one(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        proxy.behave(Fault.DRIP, drip_bytes_s=20)
        begun = time.monotonic()
        client.sendall(b"abcdef")
        assert received(client, 6) == b"abcdef"
        assert time.monotonic() - begun >= 6 / 20


def test_a_drip_ends_with_the_knob(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        proxy.behave(Fault.DRIP, drip_bytes_s=0.001)
        client.sendall(b"a" * 1000)
        assert is_silent(client)
        proxy.behave()
        assert received(client, 1000) == b"a" * 1000


def test_a_refused_connection_is_reset_while_live_ones_pass(proxy: FaultProxy) -> None:
    with connected(proxy) as old:
        old.sendall(b"1")
        assert received(old, 1) == b"1"
        proxy.behave(Fault.REFUSE)
        with pytest.raises(ConnectionResetError), connected(proxy) as new:
            new.recv(1)
        old.sendall(b"2")
        assert received(old, 1) == b"2"


def test_all_live_connections_can_be_reset(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"1")
        assert received(client, 1) == b"1"
        assert proxy.connection_count == 1
        assert proxy.cut_all() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_without_a_server_a_connection_ends() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with proxy_for(unused.getsockname()[1]) as proxy, connected(proxy) as client, pytest.raises(ConnectionResetError):
            client.recv(1)
