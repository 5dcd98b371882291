"""One leader among several, on a real PostgreSQL: who has the lock, and how it passes on."""

from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import psycopg2
import pytest
from prometheus_client import REGISTRY

from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.leadership import SILENCE_S, Leadership, lock_key
from tests.patience import PATIENCE
from workers.embedded.ports import free_port

pytestmark = pytest.mark.services

TAKEOVER_S = 3.0 * PATIENCE
Make = Callable[..., Leadership]


@pytest.fixture
def make(ledger: Ledger) -> Iterator[Make]:
    """Makes instances of a role; closes them at the end."""
    made: list[Leadership] = []

    def instance(role: str = "sweeper", *, at: Ledger | str = ledger, silence_s: float = SILENCE_S) -> Leadership:
        made.append(Leadership(at, role, silence_s=silence_s))
        return made[-1]

    yield instance
    for each in made:
        each.close()


@pytest.fixture
def ask(ledger_url: str) -> Iterator[Callable[..., list[Any]]]:
    """Asks PostgreSQL itself."""
    connection = psycopg2.connect(ledger_url.replace("+psycopg2", ""))
    connection.autocommit = True

    def rows(statement: str, *parameters: object) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    yield rows
    connection.close()


def leads_within(instance: Leadership, limit_s: float) -> bool:
    """Ask as a process does, again and again, until it leads."""
    until = monotonic() + limit_s
    while not (leads := instance.is_leader()) and monotonic() < until:
        Event().wait(0.05)
    return leads


def backends(ask: Callable[..., list[Any]], role: str) -> list[int]:
    """The sessions that hold the role's lock."""
    found = ask(
        "SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted"
        " AND a.application_name = %s",
        f"secondread leader {role}",
    )
    return [pid for (pid,) in found]


def test_of_two_instances_the_first_that_asks_leads_for_as_long_as_it_asks(make: Make) -> None:
    first, second = make(), make()

    assert [(first.is_leader(), second.is_leader()) for _ in range(3)] == [(True, False)] * 3


def test_roles_do_not_know_of_each_other(make: Make) -> None:
    assert [make("sweeper").is_leader(), make("guard").is_leader()] == [True, True]
    assert lock_key("sweeper") != lock_key("guard")


def test_a_url_will_do_as_well(make: Make, ledger_url: str) -> None:
    assert make(at=ledger_url).is_leader()
    assert not make().is_leader()


def test_who_closes_hands_over(make: Make) -> None:
    first, second = make(), make()
    assert first.is_leader()

    first.close()

    assert leads_within(second, TAKEOVER_S)
    assert not first.is_leader()


def test_a_leader_whose_session_ends_is_none_and_the_other_takes_over(make: Make, ask: Callable[..., list[Any]]) -> None:
    first, second = make(), make()
    assert first.is_leader()
    (pid,) = backends(ask, "sweeper")
    ended_at = monotonic()

    ask("SELECT pg_terminate_backend(%s, 2000)", pid)

    assert leads_within(second, TAKEOVER_S)
    assert monotonic() - ended_at < TAKEOVER_S
    assert [first.is_leader() for _ in range(3)] == [False] * 3
    assert len(backends(ask, "sweeper")) == 1


def test_who_lost_its_session_is_not_the_leader_even_if_nobody_else_asked_and_leads_again_at_the_next_question(
    make: Make, ask: Callable[..., list[Any]]
) -> None:
    only = make()
    assert only.is_leader()
    (pid,) = backends(ask, "sweeper")

    ask("SELECT pg_terminate_backend(%s, 2000)", pid)

    assert [only.is_leader(), only.is_leader()] == [False, True]


def test_a_leader_that_asks_nothing_loses_the_lock(make: Make) -> None:
    frozen, other = make(silence_s=0.5), make()
    assert frozen.is_leader()
    silent_since = monotonic()

    assert leads_within(other, TAKEOVER_S)

    assert monotonic() - silent_since > 0.4
    assert not frozen.is_leader()
    assert other.is_leader()


def test_a_leader_that_asks_keeps_the_lock_for_longer_than_its_silence(make: Make) -> None:
    first, second = make(silence_s=0.5), make(silence_s=0.5)
    until = monotonic() + 1.2

    while monotonic() < until:
        assert first.is_leader()
        assert not second.is_leader()
        Event().wait(0.1)


def test_without_a_server_nobody_leads_and_nothing_is_raised(make: Make) -> None:
    instance = make(at=f"postgresql+psycopg2://me:secret@127.0.0.1:{free_port()}/db")
    asked_at = monotonic()

    assert [instance.is_leader(), instance.is_leader()] == [False, False]
    assert monotonic() - asked_at < TAKEOVER_S


def test_a_question_is_one_statement_of_one_session(make: Make, ask: Callable[..., list[Any]]) -> None:
    leader = make()
    assert [leader.is_leader() for _ in range(5)] == [True] * 5

    # Once however often it is asked: the lock is not counted up.
    (pid,) = backends(ask, "sweeper")
    ((statement, state),) = ask("SELECT query, state FROM pg_stat_activity WHERE pid = %s", pid)
    assert (statement, state) == ("SELECT true", "idle")


def test_the_take_over_is_told(make: Make) -> None:
    before = REGISTRY.get_sample_value("secondread_leader_since_timestamp_seconds", {"role": "told"})

    leader = make("told")
    assert leader.is_leader()
    since = REGISTRY.get_sample_value("secondread_leader_since_timestamp_seconds", {"role": "told"})
    assert leader.is_leader()

    assert before is None
    assert since is not None
    assert REGISTRY.get_sample_value("secondread_leader_since_timestamp_seconds", {"role": "told"}) == since
