"""How much the compensation queue may use: everything while the house is idle, a tenth while it is not."""

import pytest

from pipeline.cases.compensation import IDLE_RELEASE, MOST_ON_THE_WAY, MOST_SAVED, Share, retry_delay_s


@pytest.mark.parametrize(("running", "released"), [(0, IDLE_RELEASE), (1, IDLE_RELEASE - 1), (IDLE_RELEASE, 0), (IDLE_RELEASE + 3, 0)])
def test_an_idle_house_keeps_a_few_on_their_way(running: int, released: int) -> None:
    assert Share().release_count(waiting_count=0, running_count=running, completed_count=0) == released


def test_a_busy_house_gives_a_tenth_of_what_it_completes() -> None:
    share = Share()

    released = [share.release_count(waiting_count=5, running_count=5, completed_count=3) for _ in range(100)]

    assert sum(released) == pytest.approx(30, abs=1)


def test_what_was_saved_up_does_not_come_all_at_once() -> None:
    share = Share()
    share.release_count(waiting_count=0, running_count=IDLE_RELEASE, completed_count=10_000)

    assert share.release_count(waiting_count=9, running_count=0, completed_count=0) == MOST_SAVED


@pytest.mark.parametrize(("running", "released"), [(MOST_ON_THE_WAY - 2, 2), (MOST_ON_THE_WAY, 0), (MOST_ON_THE_WAY + 9, 0)])
def test_a_busy_house_has_no_more_than_a_batch_on_its_way(running: int, released: int) -> None:
    assert Share(saved=MOST_SAVED).release_count(waiting_count=5, running_count=running, completed_count=0) == released


def test_a_busy_house_that_completes_nothing_releases_nothing() -> None:
    share = Share()

    assert [share.release_count(waiting_count=1, running_count=0, completed_count=0) for _ in range(10)] == [0] * 10


@pytest.mark.parametrize(("attempts", "longest_s"), [(0, 60), (1, 240), (2, 960), (3, 3840), (4, 15360), (5, 21600), (50, 21600)])
def test_tries_come_later_and_later_with_full_jitter(attempts: int, longest_s: float) -> None:
    assert retry_delay_s(attempts, jitter=lambda: 1.0) == longest_s
    assert retry_delay_s(attempts, jitter=lambda: 0.25) == longest_s / 4
    assert retry_delay_s(attempts, jitter=lambda: 0.0) == 0
