"""One attempt against real receivers: good, slow, endless, broken, encrypted and forbidden ones."""

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from pipeline.callbacks.client import DeliveryResult, WebhookClient
from pipeline.callbacks.destination import Destination
from pipeline.callbacks.signature import new_secret, sign
from pipeline.deadline import utc_now

BODY = b'{"type":"case.completed"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
ENOUGH_S = 10.0
"""For what should not wait at all."""

Make = Callable[..., Any]


@pytest.fixture
def client() -> WebhookClient:
    """Its operator has listed the loopback."""
    return WebhookClient(Destination(allow_networks=["127.0.0.0/8"], allow_http=True))


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Listens, and says nothing: the kernel accepts, nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def at_example(port: int, *, path: str = "/hook") -> str:
    return f"https://receiver.example:{port}{path}"


def client_for_example(context: ssl.SSLContext | None, *addresses: str, connect_timeout_s: float = ENOUGH_S) -> WebhookClient:
    """A client whose name service knows receiver.example, here on the loopback."""
    policy = Destination(allow_networks=["127.0.0.0/8"], allow_http=True, lookup=lambda host, port: list(addresses or ["127.0.0.1"]))
    return WebhookClient(policy, ssl_context=context, connect_timeout_s=connect_timeout_s)


def test_a_receiver_gets_the_stored_bytes_and_can_verify_them(client: WebhookClient, start_receiver: Make, answer_status: Make) -> None:
    receiver = start_receiver(answer_status(204))
    secret = new_secret()

    outcome = client.deliver(receiver.url + "?site=7", sign([secret], message_id="evt_1", at=utc_now(), body=BODY), BODY)

    assert (outcome.result, outcome.status_code, outcome.reason) == (DeliveryResult.DELIVERED, 204, None)
    (request,) = receiver.seen
    assert (request.path, request.body) == ("/hook?site=7", BODY)
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["connection"] == "close"
    Webhook(secret).verify(request.body, request.headers)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (200, DeliveryResult.DELIVERED),
        (410, DeliveryResult.GONE),
        (404, DeliveryResult.REFUSED),
        (500, DeliveryResult.REFUSED),
        (503, DeliveryResult.THROTTLED),
    ],
)
def test_a_status_is_an_outcome(
    client: WebhookClient, start_receiver: Make, answer_status: Make, code: int, result: DeliveryResult
) -> None:
    outcome = client.deliver(start_receiver(answer_status(code)).url, {}, BODY)

    assert (outcome.result, outcome.status_code) == (result, code)


def test_a_throttling_receiver_says_when_to_come_again(client: WebhookClient, start_receiver: Make, answer_status: Make) -> None:
    outcome = client.deliver(start_receiver(answer_status(429, Retry_After="20")).url, {}, BODY)

    assert (outcome.result, outcome.retry_after_s) == (DeliveryResult.THROTTLED, 20.0)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_not_followed(client: WebhookClient, start_receiver: Make, answer_status: Make, code: int) -> None:
    elsewhere = start_receiver(answer_status(200))
    receiver = start_receiver(answer_status(code, Location=elsewhere.url))

    outcome = client.deliver(receiver.url, {}, BODY)

    assert (outcome.result, outcome.status_code) == (DeliveryResult.REFUSED, code)
    assert len(receiver.seen) == 1
    assert elsewhere.seen == []


def test_a_head_that_drips_is_cut_by_the_wall_clock(client: WebhookClient, start_receiver: Make, answer_raw: Make) -> None:
    receiver = start_receiver(answer_raw(HEAD + b"X-Slow: ", then_for_ever=b".", every_s=0.01))

    outcome = client.deliver(receiver.url, {}, BODY, timeout_s=0.3)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "timeout")
    assert 0.3 <= outcome.duration_s < 1.5


def test_a_body_that_drips_is_cut_by_the_wall_clock_and_counts_as_delivered(
    client: WebhookClient, start_receiver: Make, answer_raw: Make
) -> None:
    receiver = start_receiver(answer_raw(HEAD + b"Content-Length: 999999999\r\n\r\n", then_for_ever=b".", every_s=0.01))

    outcome = client.deliver(receiver.url, {}, BODY, timeout_s=0.3)

    assert outcome.result is DeliveryResult.DELIVERED
    assert 0.3 <= outcome.duration_s < 1.5
    assert receiver.hung_up.wait(ENOUGH_S)


def test_a_receiver_that_never_answers_is_given_up(client: WebhookClient, silent: socket.socket) -> None:
    outcome = client.deliver(f"http://127.0.0.1:{port_of(silent)}/", {}, BODY, timeout_s=0.2)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "timeout")


def test_an_endless_body_is_read_to_64_kb_and_hung_up_on(client: WebhookClient, start_receiver: Make, answer_raw: Make) -> None:
    receiver = start_receiver(answer_raw(HEAD + b"Content-Length: 10485760\r\n\r\n", then_for_ever=b"x" * 65536))

    outcome = client.deliver(receiver.url, {}, BODY, timeout_s=ENOUGH_S)

    assert outcome.result is DeliveryResult.DELIVERED
    assert 60_000 < outcome.reply_bytes <= 65_536
    assert receiver.hung_up.wait(ENOUGH_S)


@pytest.mark.parametrize(
    ("start", "then_for_ever"),
    [(HEAD + b"X-Long: ", b"x" * 65536), (HEAD, b"X-Many: x\r\n"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")],
)
def test_an_endless_head_is_no_reply(
    client: WebhookClient, start_receiver: Make, answer_raw: Make, start: bytes, then_for_ever: bytes
) -> None:
    receiver = start_receiver(answer_raw(start, then_for_ever=then_for_ever))

    outcome = client.deliver(receiver.url, {}, BODY, timeout_s=ENOUGH_S)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "reply-too-long")


def test_a_reply_cut_after_its_head_was_delivered(client: WebhookClient, start_receiver: Make, answer_raw: Make) -> None:
    receiver = start_receiver(answer_raw(HEAD + b"Content-Length: 100\r\n\r\nonly this"))

    outcome = client.deliver(receiver.url, {}, BODY, timeout_s=ENOUGH_S)

    assert (outcome.result, outcome.reply_bytes) == (DeliveryResult.DELIVERED, 9)


@pytest.mark.parametrize("reply", [b"", HEAD, b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_reply_was_not_delivered(client: WebhookClient, start_receiver: Make, answer_raw: Make, reply: bytes) -> None:
    outcome = client.deliver(start_receiver(answer_raw(reply)).url, {}, BODY, timeout_s=ENOUGH_S)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "bad-reply")
    assert outcome.status_code is None


def test_a_closed_port_is_unreachable(client: WebhookClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = port_of(listening)

    outcome = client.deliver(f"http://127.0.0.1:{port}/", {}, BODY)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "connect-failed")


def test_a_name_that_nobody_knows_is_unreachable() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror

    outcome = WebhookClient(Destination(lookup=unknown)).deliver("https://receiver.example/", {}, BODY)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "name-not-resolved")


def test_behind_a_dead_address_the_next_one_is_tried(start_receiver: Make, answer_status: Make) -> None:
    receiver = start_receiver(answer_status(200))
    client = client_for_example(None, "127.0.0.2", "127.0.0.1")

    outcome = client.deliver(f"http://receiver.example:{receiver.port}/", {}, BODY)

    assert outcome.result is DeliveryResult.DELIVERED
    assert receiver.seen[0].headers["host"] == f"receiver.example:{receiver.port}"


def test_encryption_keeps_the_name_although_the_address_is_connected_to(
    start_receiver: Make, answer_status: Make, trusting: ssl.SSLContext
) -> None:
    receiver = start_receiver(answer_status(200), tls=True)

    outcome = client_for_example(trusting).deliver(at_example(receiver.port), {}, BODY)

    assert outcome.result is DeliveryResult.DELIVERED
    assert receiver.names == ["receiver.example"]
    assert receiver.seen[0].headers["host"] == f"receiver.example:{receiver.port}"


def test_a_self_signed_certificate_is_refused(start_receiver: Make, answer_status: Make) -> None:
    receiver = start_receiver(answer_status(200), tls=True)

    outcome = client_for_example(None).deliver(at_example(receiver.port), {}, BODY)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "tls-failed")
    assert receiver.seen == []


def test_a_certificate_for_another_name_is_refused(start_receiver: Make, answer_status: Make, trusting: ssl.SSLContext) -> None:
    receiver = start_receiver(answer_status(200), tls=True)

    outcome = client_for_example(trusting).deliver(f"https://other.example:{receiver.port}/", {}, BODY)

    assert outcome.reason == "tls-failed"
    assert receiver.seen == []


def test_a_receiver_that_speaks_no_tls_is_unreachable(start_receiver: Make, answer_status: Make, trusting: ssl.SSLContext) -> None:
    receiver = start_receiver(answer_status(200))

    outcome = client_for_example(trusting).deliver(at_example(receiver.port), {}, BODY, timeout_s=ENOUGH_S)

    assert (outcome.reason, receiver.seen) == ("tls-failed", [])


def test_a_handshake_that_hangs_ends_with_the_time_for_connecting(silent: socket.socket, trusting: ssl.SSLContext) -> None:
    outcome = client_for_example(trusting, connect_timeout_s=0.2).deliver(at_example(port_of(silent)), {}, BODY, timeout_s=ENOUGH_S)

    assert (outcome.result, outcome.reason) == (DeliveryResult.UNREACHABLE, "connect-timeout")
    assert outcome.duration_s < 1.5


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::ffff:127.0.0.1]"])
def test_a_forbidden_socket_stays_silent(silent: socket.socket, host: str) -> None:
    client = WebhookClient(Destination(allow_http=True))

    outcome = client.deliver(f"http://{host}:{port_of(silent)}/", {}, BODY)

    assert (outcome.result, outcome.reason) == (DeliveryResult.FORBIDDEN, "loopback")
    assert not outcome.may_be_retried
    with pytest.raises(BlockingIOError):
        silent.accept()


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"]])
def test_a_name_that_turned_inwards_is_not_connected_to(silent: socket.socket, addresses: list[str]) -> None:
    meanings = iter([["8.8.8.8"], addresses])
    policy = Destination(allow_http=True, lookup=lambda host, port: next(meanings))
    url = f"http://rebind.test:{port_of(silent)}/"
    policy.admit(url, timeout_s=ENOUGH_S)

    outcome = WebhookClient(policy).deliver(url, {}, BODY)

    assert (outcome.result, outcome.reason) == (DeliveryResult.FORBIDDEN, "loopback")
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_an_attempt_asks_the_name_service_once(start_receiver: Make, answer_status: Make) -> None:
    asked: list[str] = []

    def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    receiver = start_receiver(answer_status(200))
    client = WebhookClient(Destination(allow_networks=["127.0.0.0/8"], allow_http=True, lookup=lookup))

    client.deliver(f"http://receiver.example:{receiver.port}/", {}, BODY)

    assert asked == ["receiver.example"]


def test_proxies_of_the_environment_are_not_used(
    client: WebhookClient, start_receiver: Make, answer_status: Make, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port_of(silent)}")
    receiver = start_receiver(answer_status(200))

    outcome = client.deliver(receiver.url, {}, BODY)

    assert outcome.result is DeliveryResult.DELIVERED
    with pytest.raises(BlockingIOError):
        silent.accept()
