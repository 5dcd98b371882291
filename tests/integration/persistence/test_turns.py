"""Whose turn it is to decide about a waiting line, and what the devices say of themselves, in a real Valkey."""

from uuid import UUID, uuid4

import pytest
import redis

from pipeline.persistence.waiting_line import TURN_S, AnothersTurn, LineView, Waiting, WaitingLine

pytestmark = pytest.mark.services

NOW = 1_767_355_200.123456


def waiting() -> Waiting:
    return Waiting(uuid4(), virtual_deadline=NOW + 30, deadline=NOW + 30, ready_at=NOW, image_count=1, lane="routine", publish_no=17)


def head(line: WaitingLine) -> list[UUID]:
    return [case.case_id for case in line.view(limit=100, now=NOW).waiting]


def test_one_former_at_a_time_has_the_turn(line: WaitingLine) -> None:
    case = waiting()
    line.join([case])

    first, second = line.look("gpu@a", limit=10, now=NOW), line.look("gpu@b", limit=10, now=NOW)

    assert isinstance(first, LineView)
    assert isinstance(second, AnothersTurn)
    assert 0 < second.seconds <= TURN_S
    assert line.take("gpu@b", [case.case_id], busy_until=None) is None
    assert head(line) == [case.case_id]
    assert isinstance(line.look("gpu@a", limit=10, now=NOW), LineView)
    assert line.take("gpu@a", [case.case_id], busy_until=NOW + 7) == [case.case_id]
    assert isinstance(line.look("gpu@b", limit=10, now=NOW), LineView)


def test_nobody_has_the_turn_of_an_empty_line(line: WaitingLine) -> None:
    line.look("gpu@a", limit=10, now=NOW)

    assert isinstance(line.look("gpu@b", limit=10, now=NOW), LineView)


def test_a_turn_is_passed_on_by_its_holder_alone(line: WaitingLine) -> None:
    line.join([waiting()])
    line.look("gpu@a", limit=10, now=NOW)

    line.pass_on("gpu@b")
    assert isinstance(line.look("gpu@b", limit=10, now=NOW), AnothersTurn)
    line.pass_on("gpu@a")
    assert isinstance(line.look("gpu@b", limit=10, now=NOW), LineView)


def test_the_turn_of_a_former_that_died_is_over_soon(line: WaitingLine, client: "redis.Redis") -> None:
    case = waiting()
    line.join([case])
    line.look("gpu@dead", limit=10, now=NOW)
    (turn,) = client.keys("secondread:line:*:turn")

    assert 0 < client.pttl(turn) <= TURN_S * 1000
    # As if that time had passed.
    client.delete(turn)
    assert isinstance(line.look("gpu@b", limit=10, now=NOW), LineView)
    assert line.take("gpu@dead", [case.case_id], busy_until=None) is None
    assert line.take("gpu@b", [case.case_id], busy_until=None) == [case.case_id]


def test_the_next_former_is_woken_where_somebody_is_left(line: WaitingLine, client: "redis.Redis") -> None:
    cases = [waiting() for _ in range(3)]
    line.join(cases)
    with client.pubsub(ignore_subscribe_messages=True) as heard:  # type: ignore[no-untyped-call]
        heard.subscribe(line.channel)
        heard.get_message(timeout=1)
        in_own_turn(line, [cases[0].case_id])
        line.look("gpu@a", limit=10, now=NOW)
        line.pass_on("gpu@a")
        in_own_turn(line, [cases[1].case_id, cases[2].case_id])
        client.publish(line.channel, "end")
        counts: list[str] = []
        while (message := heard.get_message(timeout=1)) and message["data"] != "end":
            counts.append(message["data"])

    assert counts == ["0", "0"]


def in_own_turn(line: WaitingLine, case_ids: list[UUID]) -> None:
    """Take in one's own turn."""
    line.look("gpu@a", limit=100, now=NOW)
    assert line.take("gpu@a", case_ids, busy_until=None) == case_ids


def test_a_device_is_busy_from_the_step_in_which_it_takes_and_idle_when_it_looks_again(line: WaitingLine) -> None:
    case = waiting()
    line.join([case, waiting()])
    line.look("gpu@a", limit=10, now=NOW)

    line.take("gpu@a", [case.case_id], busy_until=NOW + 7.5)
    after_taking = line.view(limit=1, now=NOW)
    line.look("gpu@a", limit=10, now=NOW + 8)
    after_the_run = line.view(limit=1, now=NOW + 8)

    assert (after_taking.busy_until, after_taking.idle) == ({"gpu@a": NOW + 7.5}, frozenset())
    assert not after_the_run.busy_until
    assert after_the_run.idle == {"gpu@a"}


def test_an_idle_device_is_counted_while_it_looks_and_three_seconds_longer(line: WaitingLine) -> None:
    for second in range(10):
        line.look("gpu@a", limit=10, now=NOW + second)
    line.look("gpu@b", limit=10, now=NOW)

    assert line.view(limit=1, now=NOW + 9.5).idle == {"gpu@a"}
    assert line.view(limit=1, now=NOW + 13).idle == frozenset()
