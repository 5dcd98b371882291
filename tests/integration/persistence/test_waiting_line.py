"""The waiting line in a real Valkey: order, atomic takes, and what survives a Redis that is away or half empty."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
import redis

from pipeline.errors import QueueUnavailable
from pipeline.persistence.waiting_line import Waiting, WaitingLine, open_redis

pytestmark = pytest.mark.services

NOW = 1_767_355_200.123456


@pytest.fixture
def line_away() -> Iterator[WaitingLine]:
    """A line whose address nobody listens on: bound, so that nobody can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with open_redis(f"redis://:x@127.0.0.1:{bound.getsockname()[1]}/0") as client:
            yield WaitingLine(client, model="m:1", bucket="256")


def waiting(*, place: float = NOW + 30, case_id: UUID | None = None) -> Waiting:
    return Waiting(
        case_id=case_id or uuid4(),
        virtual_deadline=place,
        deadline=NOW + 30,
        ready_at=NOW,
        image_count=2,
        lane="routine",
        publish_no=17,
    )


def head(line: WaitingLine, limit: int = 100) -> list[UUID]:
    return [case.case_id for case in line.view(limit=limit, now=NOW).waiting]


def test_a_case_comes_out_as_it_went_in(line: WaitingLine) -> None:
    case = waiting()

    line.join([case])

    assert line.view(limit=10, now=NOW).waiting == (case,)


def test_the_line_is_in_the_order_of_virtual_deadlines(line: WaitingLine) -> None:
    cases = [waiting(place=NOW + place) for place in (30, 12, 600, 12.000001, 29)]

    line.join(cases[:3])
    line.join(cases[3:])

    assert head(line) == [cases[at].case_id for at in (1, 3, 4, 0, 2)]
    assert head(line, limit=2) == [cases[1].case_id, cases[3].case_id]
    assert line.length() == 5


def test_who_joins_again_keeps_place_and_age(line: WaitingLine) -> None:
    case = waiting()
    line.join([case])

    line.join([replace(case, virtual_deadline=NOW + 1, ready_at=NOW + 9, publish_no=99)])

    assert line.view(limit=10, now=NOW).waiting == (case,)


def test_the_formers_are_told_how_many_really_joined(line: WaitingLine, client: "redis.Redis") -> None:
    known, fresh = waiting(), waiting()
    with client.pubsub(ignore_subscribe_messages=True) as heard:  # type: ignore[no-untyped-call]
        heard.subscribe(line.channel)
        heard.get_message(timeout=1)
        line.join([known])
        line.join([known, fresh, waiting()])
        line.join([known])
        client.publish(line.channel, "end")
        counts: list[str] = []
        while (message := heard.get_message(timeout=1)) and message["data"] != "end":
            counts.append(message["data"])

    assert counts == ["1", "2"]


def test_nobody_joining_is_fine(line: WaitingLine) -> None:
    line.join([])

    assert (line.length(), line.view(limit=10, now=NOW).waiting) == (0, ())


def take(line: WaitingLine, case_ids: list[UUID], *, device: str = "gpu@a") -> list[UUID] | None:
    """Take in one's own turn."""
    line.look(device, limit=100, now=NOW)
    return line.take(device, case_ids, busy_until=None)


def test_who_is_taken_is_out_of_line_and_taken_once(line: WaitingLine, client: "redis.Redis") -> None:
    cases = [waiting() for _ in range(3)]
    line.join(cases)
    asked = [cases[2].case_id, uuid4(), cases[0].case_id]

    assert take(line, asked) == [cases[2].case_id, cases[0].case_id]
    assert take(line, asked) == []
    assert head(line) == [cases[1].case_id]
    assert take(line, [cases[1].case_id]) == [cases[1].case_id]
    assert client.keys("secondread:line:*") == client.keys("secondread:line:*:devices")


def test_of_eight_formers_at_once_one_gets_each_case(clean_redis: str, line: WaitingLine) -> None:
    cases = [waiting(place=NOW + place) for place in range(400)]
    line.join(cases)

    def form(number: int) -> list[UUID]:
        with open_redis(clean_redis) as own:
            mine = WaitingLine(own, model="breast-us:1.0", bucket="256")
            got: list[UUID] = []
            while seen := [case.case_id for case in mine.view(limit=16, now=NOW).waiting]:
                mine.look(f"gpu@{number}", limit=16, now=NOW)
                got += mine.take(f"gpu@{number}", seen, busy_until=None) or []
            return got

    with ThreadPoolExecutor(8) as pool:
        taken = Counter(case_id for got in pool.map(form, range(8)) for case_id in got)

    assert taken == {case.case_id: 1 for case in cases}


def test_who_was_put_off_meanwhile_takes_a_new_place(line: WaitingLine) -> None:
    case = waiting(place=NOW + 30)
    line.join([case, waiting(place=NOW + 40)])
    put_off = replace(case, virtual_deadline=NOW + 700, ready_at=NOW + 100, lane="compensation", publish_no=99)

    line.join([put_off])

    assert line.view(limit=10, now=NOW).waiting[1] == put_off
    assert line.length() == 2


def test_lines_of_other_models_and_buckets_are_other_lines(client: "redis.Redis", line: WaitingLine) -> None:
    line.join([waiting()])

    assert WaitingLine(client, model="breast-us:1.1", bucket="256").length() == 0
    assert WaitingLine(client, model="breast-us:1.0", bucket="512").length() == 0


def test_who_is_not_in_line_is_missing(line: WaitingLine) -> None:
    present, gone, never = uuid4(), uuid4(), uuid4()
    line.join([waiting(case_id=present), waiting(case_id=gone)])
    line.leave([gone])

    assert line.missing([gone, present, never]) == [gone, never]
    assert line.missing([]) == []


def test_leaving_twice_is_fine(line: WaitingLine) -> None:
    case = waiting()
    line.join([case])

    line.leave([case.case_id])
    line.leave([case.case_id])
    line.leave([])

    assert line.length() == 0


def test_devices_are_seen_while_they_believe_to_be_busy(line: WaitingLine, client: "redis.Redis") -> None:
    line.say_busy("gpu@a", NOW + 7.5)
    line.say_busy("gpu@b", NOW + 1)
    line.say_busy("gpu@c", NOW + 9)
    line.say_busy("gpu@c", 0.0)

    assert line.view(limit=1, now=NOW).busy_until == {"gpu@a": NOW + 7.5, "gpu@b": NOW + 1}
    assert line.view(limit=1, now=NOW + 2).busy_until == {"gpu@a": NOW + 7.5}
    (key,) = client.keys("secondread:line:*:devices")
    assert 0 < client.ttl(key) <= 60


def test_facts_without_a_place_are_not_seen_and_do_not_last(line: WaitingLine, client: "redis.Redis") -> None:
    stale, case_id = waiting(), uuid4()
    line.join([waiting(case_id=case_id)])
    (items,) = client.keys("secondread:line:*:items")
    client.hset(items, str(stale.case_id), '[0, 0, 1, "urgent", 1]')

    assert head(line) == [case_id]
    assert line.missing([stale.case_id]) == [stale.case_id]
    line.join([stale])

    assert stale in line.view(limit=10, now=NOW).waiting


def test_a_place_without_facts_is_passed_over_until_the_case_joins_again(line: WaitingLine, client: "redis.Redis") -> None:
    broken, whole = waiting(place=NOW + 1), waiting(place=NOW + 2)
    line.join([broken, whole])
    (items,) = client.keys("secondread:line:*:items")
    client.hdel(items, str(broken.case_id))

    assert head(line) == [whole.case_id]
    line.join([broken])

    assert line.view(limit=10, now=NOW).waiting == (broken, whole)


def test_a_line_that_lost_everything_is_empty_and_works_on(line: WaitingLine, client: "redis.Redis") -> None:
    case = waiting()
    line.join([case])
    take(line, [uuid4()])

    client.flushall()
    # A replaced server knows no scripts either.
    client.script_flush()

    assert line.missing([case.case_id]) == [case.case_id]
    line.join([case])
    assert take(line, [case.case_id]) == [case.case_id]


@pytest.mark.parametrize("call", ["join", "view", "look", "take", "pass_on", "leave", "missing", "length", "say_busy"])
def test_a_redis_that_is_away_is_said_so_within_two_seconds(line_away: WaitingLine, call: str) -> None:
    case = waiting()
    calls: dict[str, Callable[[], object]] = {
        "join": lambda: line_away.join([case]),
        "view": lambda: line_away.view(limit=10, now=NOW),
        "look": lambda: line_away.look("gpu@a", limit=10, now=NOW),
        "take": lambda: line_away.take("gpu@a", [case.case_id], busy_until=None),
        "pass_on": lambda: line_away.pass_on("gpu@a"),
        "leave": lambda: line_away.leave([case.case_id]),
        "missing": lambda: line_away.missing([case.case_id]),
        "length": line_away.length,
        "say_busy": lambda: line_away.say_busy("gpu@a", NOW),
    }
    started = time.monotonic()

    with pytest.raises(QueueUnavailable):
        calls[call]()

    assert time.monotonic() - started < 2


def test_every_wait_for_redis_has_an_end(client: "redis.Redis") -> None:
    options = client.connection_pool.connection_kwargs

    assert 0 < options["socket_timeout"] <= 5
    assert 0 < options["socket_connect_timeout"] <= 1
