"""Which of several lines a device serves: arithmetic by hand."""

from pipeline.batching.choice import Offer, most_pressing
from pipeline.batching.rule import Fire, FireReason


def offer(
    *, predicted_s: float = 2.0, slack_s: float = 60.0, waited_s: float = 0.0, count: int = 1, reason: FireReason = "stop rule"
) -> Offer:
    fire = Fire(tuple(range(count)), count, reason, predicted_s, slack_s, waited_s=waited_s)
    return Offer(fire, full_run_s=8.0, margin_s=0.5)


def test_the_line_that_takes_most_waiting_away_for_a_second_of_the_device_goes_first() -> None:
    # 20 s waited and 4 x 2 s to wait, by 2 s: 14. Against 40 s and 8 x 5 s, by 5 s: 16.
    assert most_pressing([offer(waited_s=20, count=4), offer(predicted_s=5.0, waited_s=40, count=8)], 4) == 1
    assert most_pressing([offer(waited_s=26, count=4), offer(predicted_s=5.0, waited_s=40, count=8)], 4) == 0


def test_who_cannot_wait_for_another_device_goes_before_all_that() -> None:
    # Four devices share runs of 8 s: another is free in 2 s. Half a second is the margin.
    many = offer(waited_s=1000, count=16)

    assert most_pressing([many, offer(slack_s=2.4)], 4) == 1
    assert most_pressing([many, offer(slack_s=2.6)], 4) == 0


def test_of_two_that_cannot_wait_the_tighter_goes() -> None:
    assert most_pressing([offer(slack_s=1.0), offer(slack_s=0.9)], 4) == 1


def test_put_off_cases_by_themselves_come_last() -> None:
    put_off = offer(slack_s=0.0, waited_s=100_000, count=16, reason="spare device")

    assert most_pressing([put_off, offer()], 4) == 1
