"""Who starves, and who only looks like it."""

import pytest

from workers.watchdog import LOOKS, Starvation

FULL, EMPTY, AWAY = 3, 0, None


def starved_at(looks: list[tuple[int, bool, int | None]]) -> int | None:
    """The look, from 1, at which a worker is ended."""
    starvation = Starvation()
    for number, (received_count, has_credit, queued_count) in enumerate(looks, start=1):
        if starvation.look(received_count=received_count, has_credit=has_credit, queued_count=queued_count):
            return number
    return None


def test_a_worker_with_room_that_receives_nothing_from_a_full_queue_is_ended_after_the_whole_time() -> None:
    assert starved_at([(0, True, FULL)] * 50) == LOOKS + 1


@pytest.mark.parametrize(
    "look", [(0, True, EMPTY), (0, True, AWAY), (0, False, FULL), (0, False, None)], ids=["idle", "no redis", "busy", "busy, not asked"]
)
def test_who_is_idle_busy_or_without_redis_lives(look: tuple[int, bool, int | None]) -> None:
    assert starved_at([look] * 50) is None


@pytest.mark.parametrize("relief", [(0, True, EMPTY), (0, True, AWAY), (0, False, FULL), (1, True, FULL)])
def test_one_good_look_begins_the_time_anew(relief: tuple[int, bool, int | None]) -> None:
    received = relief[0]

    assert starved_at([(0, True, FULL)] * LOOKS + [relief] + [(received, True, FULL)] * LOOKS) is None
    assert starved_at([(0, True, FULL)] * LOOKS + [relief] + [(received, True, FULL)] * 50) == 2 * LOOKS + 2


def test_who_receives_now_and_then_lives() -> None:
    assert starved_at([(number // LOOKS, True, FULL) for number in range(60)]) is None
