import json
from collections.abc import Callable
from email.message import MIMEPart
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any, Protocol

import pytest

from workers.client import Client, ProblemError, Unreachable

CASE_ID = "case_0197c1d2e3f4a5b6c7d8e9f001122334"
MakeCase = Callable[..., dict[str, Any]]


class Asked(Protocol):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Door(Protocol):
    url: str
    asked: list[Asked]

    def says(self, status: int, body: Any = b"", **headers: str) -> None: ...
    def refuses(self, status: int, code: str, **headers: str) -> None: ...
    def hangs_up(self) -> None: ...


def parts_of(asked: Asked) -> list[tuple[str, str | None, bytes]]:
    """Name, file name and content of each part, read by the standard library's MIME parser."""
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {asked.headers['Content-Type']}\r\n\r\n".encode() + asked.body)
    return [
        (str(part.get_param("name", header="content-disposition")), part.get_filename(), content_of(part)) for part in message.iter_parts()
    ]


def content_of(part: MIMEPart) -> bytes:
    content = part.get_content()
    return content if isinstance(content, bytes) else str(content).encode()


def test_a_submission_carries_key_wishes_and_files(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(202, case_body())
    case = client.submit([b"one", b"two"], idempotency_key="my-own-key", lane="urgent", deadline_s=12.5)
    asked = door.asked[0]
    assert (case.case_id, case.status) == (CASE_ID, "accepted")
    assert (asked.headers["Authorization"], asked.headers["Idempotency-Key"]) == ("Bearer srk_key", "my-own-key")
    assert {(name, content) for name, _, content in parts_of(asked)} == {
        ("lane", b"urgent"),
        ("deadline_s", b"12.5"),
        ("instances", b"one"),
        ("instances", b"two"),
    }


def test_the_name_of_a_file_stays_here(client: Client, door: Door, case_body: MakeCase, tmp_path: Path) -> None:
    file = tmp_path / "Doe^Jane.dcm"
    file.write_bytes(b"content")
    door.says(202, case_body())
    client.submit(file)
    assert parts_of(door.asked[0]) == [("instances", "1.dcm", b"content")]


def test_a_source_is_named_in_json(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(202, case_body())
    client.submit_source("archive", ["a.dcm"], client_reference="order-17")
    assert json.loads(door.asked[0].body) == {"source": "archive", "paths": ["a.dcm"], "client_reference": "order-17"}


def test_a_busy_door_is_tried_again_with_the_same_key_after_what_it_asks_for(
    client: Client, door: Door, case_body: MakeCase, pauses_s: list[float]
) -> None:
    door.refuses(503, "ledger-unavailable", Retry_After="4")
    door.refuses(429, "quota-exceeded", Retry_After="6")
    door.says(202, case_body())
    client.submit(b"one")
    assert len({asked.headers["Idempotency-Key"] for asked in door.asked}) == 1
    assert len({len(asked.body) for asked in door.asked}) == 1
    assert 4.0 <= pauses_s[0] <= 6.0
    assert 6.0 <= pauses_s[1] <= 9.0


def test_two_submissions_never_share_a_key(client: Client, door: Door, case_body: MakeCase) -> None:
    for _ in range(2):
        door.says(202, case_body())
        client.submit(b"one")
    assert len({asked.headers["Idempotency-Key"] for asked in door.asked}) == 2


def test_after_three_tries_the_refusal_is_told(client: Client, door: Door, pauses_s: list[float]) -> None:
    for _ in range(3):
        door.refuses(503, "ledger-unavailable", Retry_After="1")
    with pytest.raises(ProblemError) as refused:
        client.case(CASE_ID)
    assert (refused.value.code, refused.value.status, refused.value.advice) == ("ledger-unavailable", 503, "Wait.")
    assert (refused.value.retryable, refused.value.retry_after_s) == (True, 1)
    assert (len(door.asked), len(pauses_s)) == (3, 2)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_what_another_try_cannot_change_is_told_at_once(client: Client, door: Door, status: int) -> None:
    door.refuses(status, "some-code")
    with pytest.raises(ProblemError):
        client.case(CASE_ID)
    assert len(door.asked) == 1


def test_a_door_that_wants_to_be_left_alone_for_long_is_not_waited_for(client: Client, door: Door, pauses_s: list[float]) -> None:
    door.refuses(503, "overloaded", Retry_After="600")
    with pytest.raises(ProblemError) as refused:
        client.case(CASE_ID)
    assert (refused.value.retry_after_s, pauses_s) == (600, [])


def test_a_connection_that_breaks_is_made_again(client: Client, door: Door, case_body: MakeCase) -> None:
    door.hangs_up()
    door.says(202, case_body())
    assert client.submit(b"one").case_id == CASE_ID
    assert len({asked.headers["Idempotency-Key"] for asked in door.asked}) == 1


def test_an_endpoint_is_not_added_twice_when_the_answer_is_lost(client: Client, door: Door) -> None:
    door.hangs_up()
    with pytest.raises(Unreachable):
        client.add_endpoint("https://ris.example/hooks")
    assert len(door.asked) == 1


def test_where_nobody_listens_is_said_after_three_tries(door: Door, pauses_s: list[float]) -> None:
    with Client("http://127.0.0.1:1", "srk_key", pause=pauses_s.append) as client, pytest.raises(Unreachable) as error:
        client.case(CASE_ID)
    assert (error.value.url, len(pauses_s)) == ("http://127.0.0.1:1", 2)


def test_a_proxy_that_speaks_for_itself_is_not_taken_for_the_door(client: Client, door: Door) -> None:
    door.says(502, b"<html>Bad gateway</html>")
    with pytest.raises(ProblemError) as refused:
        client.case(CASE_ID)
    assert (refused.value.code, refused.value.status) == ("unexpected-answer", 502)


def test_a_newer_door_may_say_more_than_this_client_knows(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, case_body(estimate_s=3.5, failure={"code": "c", "title": "t", "advice": "a", "owner": "new"}))
    assert client.case(CASE_ID).failure is not None


def test_waiting_asks_again_until_there_is_an_answer(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, case_body(status="fetching"))
    door.says(200, case_body(status="inferring"))
    door.says(200, case_body(status="completed", result_version=1))
    assert client.wait(CASE_ID, until_s=60).status == "completed"
    assert [asked.headers["Prefer"] for asked in door.asked] == ["wait=25"] * 3


def test_waiting_ends_when_the_time_is_over(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, case_body(status="fetching"))
    assert client.wait(CASE_ID, until_s=0).status == "fetching"


def test_a_preliminary_answer_ends_the_waiting(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, case_body(status="inferring", result_version=1, is_preliminary=True))
    assert client.wait(CASE_ID, until_s=60).is_preliminary


def test_the_list_goes_on_through_the_pages(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, {"cases": [case_body(version=1), case_body(version=2)], "next_cursor": "abc"})
    door.says(200, {"cases": [case_body(version=3)], "next_cursor": None})
    assert [case.version for case in client.cases(status="failed")] == [1, 2, 3]
    assert [asked.path for asked in door.asked] == ["/v1/cases?status=failed&limit=100", "/v1/cases?status=failed&limit=100&cursor=abc"]


def test_a_page_that_nobody_looks_at_is_not_asked_for(client: Client, door: Door, case_body: MakeCase) -> None:
    door.says(200, {"cases": [case_body()], "next_cursor": "abc"})
    next(client.cases())
    assert len(door.asked) == 1


def test_cancelling_a_case_that_is_cancelled_is_fine(client: Client, door: Door, case_body: MakeCase) -> None:
    door.refuses(409, "case-already-ended")
    door.says(200, case_body(status="cancelled"))
    assert client.cancel(CASE_ID).status == "cancelled"


def test_cancelling_a_case_that_has_its_answer_is_refused(client: Client, door: Door, case_body: MakeCase) -> None:
    door.refuses(409, "case-already-ended")
    door.says(200, case_body(status="completed", result_version=1))
    with pytest.raises(ProblemError) as refused:
        client.cancel(CASE_ID)
    assert refused.value.code == "case-already-ended"


def stream_of(*moves: tuple[int, str]) -> bytes:
    """Server-sent events by the WHATWG text: a comment, then one event a move."""
    lines = [": keep alive\n\n"]
    for version, status in moves:
        data = json.dumps({"version": version, "status": status, "attempt": 1, "at": "2026-01-02T12:00:00Z"})
        lines.append(f"event: case.moved\nid: {version}\ndata: {data}\n\n")
    return "".join(lines).encode()


def test_the_events_end_with_the_case(client: Client, door: Door) -> None:
    door.says(200, stream_of((1, "accepted"), (2, "fetching"), (3, "completed")), Content_Type="text/event-stream")
    assert [(event.version, event.status) for event in client.events(CASE_ID)] == [(1, "accepted"), (2, "fetching"), (3, "completed")]


def test_a_stream_that_breaks_is_resumed_where_it_broke(client: Client, door: Door) -> None:
    door.says(200, stream_of((1, "accepted"), (2, "fetching")), Content_Type="text/event-stream")
    door.hangs_up()
    door.says(200, stream_of((3, "failed")), Content_Type="text/event-stream")
    assert [event.version for event in client.events(CASE_ID)] == [1, 2, 3]
    assert [asked.headers["Last-Event-ID"] for asked in door.asked] == ["0", "2", "2"]


def test_a_stream_that_is_refused_says_why(client: Client, door: Door) -> None:
    door.refuses(404, "not-found")
    with pytest.raises(ProblemError) as refused:
        next(client.events(CASE_ID))
    assert refused.value.code == "not-found"
