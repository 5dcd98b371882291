"""The simulated house against arithmetic by hand and against queueing theory: neither knows our code."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.simulation import cost as costs
from pipeline.batching.simulation.bounds import inoue_mean_s, least_missed_percent
from pipeline.batching.simulation.cost import Cost, Spell
from pipeline.batching.simulation.house import House, Rule, Run
from pipeline.batching.simulation.measures import measure, percentile
from pipeline.batching.simulation.rules.windows import CommittedWindow, Delay, InOrder, PulledWindow, StrictLanes, WindowEach
from pipeline.batching.simulation.workload import DAY, Image, Mix, images, steady, studies
from pipeline.flow import Lane

EXACT = Cost(1.0, full_factor=1.0, noise=0.0)
"""A second, whatever the size."""


class TakeEverybody(InOrder):
    """An idle device takes all who wait, without a limit."""

    def look(self) -> None:
        for device in self.house.idle():
            if self.waiting:
                self.house.fire(device, self.take(len(self.waiting)))


class OneByOne(InOrder):
    """An idle device takes one."""

    def look(self) -> None:
        for device in self.house.idle():
            if self.waiting:
                self.house.fire(device, self.take(1))


def came(*moments: float, spent_s: float = 0.0) -> list[Image]:
    return [Image(moment, spent_s) for moment in moments]


def stream(rate: float, count: int, *, seed: int = 3) -> list[Image]:
    dice = random.Random(seed)
    return came(*steady(rate, count)(dice))


def mean_s(house: House, rule: Rule) -> float:
    fates = house.live(rule)
    return sum(fates.done_at[number] - image.arrives_at for number, image in enumerate(house.images)) / len(house.images)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, 3.0])
def test_one_device_that_takes_everybody_is_as_inoue_says(rate: float) -> None:
    cost = Cost(7.5, noise=0.0)

    simulated = mean_s(House(stream(rate, 20_000), cost, devices=1, seed=0), TakeEverybody())

    closed_form = inoue_mean_s(rate, alpha_s=cost.alpha_s, beta_s=cost.beta_s)
    assert simulated == pytest.approx(closed_form, rel=0.02)
    assert simulated <= 1.01 * closed_form


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_device_one_by_one_is_an_m_d_1_queue(load: float) -> None:
    simulated = mean_s(House(stream(load, 60_000), EXACT, devices=1, seed=0), OneByOne())

    # Pollaczek and Khinchine, for a service of one second.
    assert simulated == pytest.approx(1 + load / (2 * (1 - load)), rel=0.05)


def test_two_devices_and_three_images_by_hand() -> None:
    house = House(came(0.0, 0.2, 0.3), EXACT, devices=2, seed=0)

    fates = house.live(OneByOne())

    assert fates.done_at == pytest.approx({0: 1.0, 1: 1.2, 2: 2.0})
    assert [(run.device, run.numbers) for run in fates.runs] == [(0, (0,)), (1, (1,)), (0, (2,))]


def begun(rule: Rule, moments: Sequence[float], *, devices: int = 1) -> list[tuple[float, int]]:
    """When each batch began and how many were in it."""
    fates = House(came(*moments), EXACT, devices=devices, seed=0).live(rule)
    return [(round(run.began_at, 3), len(run.numbers)) for run in fates.runs]


def test_a_committed_window_closes_two_seconds_after_its_first_image_whatever_the_device_does() -> None:
    assert begun(CommittedWindow(), [0.0, 1.9, 2.1, 2.2]) == [(2.0, 2), (4.1, 2)]
    assert begun(CommittedWindow(), [0.0] * 16 + [0.5]) == [(0.0, 16), (2.5, 1)]


def test_a_pulling_worker_waits_two_seconds_from_when_it_took_the_first() -> None:
    # The device is busy until 3.0; the image of 2.5 is taken then, and held for two seconds.
    assert begun(PulledWindow(), [0.0, 2.5]) == [(2.0, 1), (5.0, 1)]


def test_workers_with_a_window_each_split_a_trickle() -> None:
    assert begun(WindowEach(), [0.0, 0.1, 0.2, 0.3], devices=2) == [(2.0, 2), (2.1, 2)]


def test_a_delay_counts_from_the_arrival_of_the_oldest() -> None:
    # The image of 2.5 is two seconds old at 4.5.
    assert begun(Delay(2.0), [0.0, 2.5]) == [(2.0, 1), (4.5, 1)]
    assert begun(Delay(0.0), [0.0, 0.1, 0.2]) == [(0.0, 1), (1.0, 2)]


def test_a_rejection_gives_up_what_waited_too_long() -> None:
    house = House(came(0.0, 0.1, 0.9), EXACT, devices=1, seed=0)

    fates = house.live(Delay(0.0, reject_after_s=0.5))

    assert list(fates.given_up_at) == [1]
    assert sorted(fates.done_at) == [0, 2]


def test_strict_priority_fills_up_with_others() -> None:
    arrived = [Image(0.0, 0.0), *[Image(0.1, 0.0, Lane.ROUTINE)] * 10, *[Image(0.2, 0.0, Lane.URGENT)] * 10]

    fates = House(arrived, EXACT, devices=1, seed=0).live(StrictLanes())

    assert fates.runs[1].numbers == (*range(11, 21), *range(1, 7))


def test_a_batch_without_room_breaks_when_three_tenths_are_over_and_fails_everybody() -> None:
    cost = Cost(1.0, full_factor=1.0, noise=0.0, short_of_memory=Spell(0, 10, 1))

    fates = House(came(0.0, 0.0, 0.5), cost, devices=1, seed=0).live(Delay(0.0))

    assert [(run.has_room, round(run.ends_at - run.began_at, 3), len(run.numbers)) for run in fates.runs] == [
        (True, 1.0, 1),
        (False, 0.3, 2),
    ]
    assert sorted(fates.given_up_at) == [1, 2]


def test_devices_are_slow_for_as_long_as_a_spell_lasts() -> None:
    cost = Cost(1.0, full_factor=1.0, noise=0.0, slow=Spell(5, 6, 1.6))

    fates = House(came(0.0, 5.5, 7.5), cost, devices=1, seed=0).live(Delay(0.0))

    assert [round(run.ends_at - run.began_at, 3) for run in fates.runs] == [1.0, 1.6, 1.0]


def test_a_full_batch_costs_four_tenths_more_than_one_image_and_four_devices_read_six_a_second() -> None:
    cost = Cost(7.5)

    assert [cost.mean_s(1), cost.mean_s(16)] == pytest.approx([7.5, 10.5])
    assert cost.capacity(4) == pytest.approx(64 / 10.5)


def test_a_day_has_its_spikes_above_what_four_devices_can_do() -> None:
    moments = studies(DAY)(random.Random(1))

    spike, lunch = (bisect_left(moments, end) - bisect_left(moments, begin) for begin, end in ((1501, 1560), (2400, 2700)))
    assert spike / 59 > Cost(7.5).capacity(4)
    assert lunch / 300 == pytest.approx(1.5, rel=0.3)
    # The area under the curve.
    assert len(moments) == pytest.approx(10_324, rel=0.05)


def test_a_mix_has_its_shares() -> None:
    mixed = images(steady(5, 4000), Mix(urgent_share=0.15, small_share=0.7), seed=1)

    assert sum(image.lane is Lane.URGENT for image in mixed) / 4000 == pytest.approx(0.15, abs=0.02)
    assert sum(image.scale == 0.4 for image in mixed) / 4000 == pytest.approx(0.7, abs=0.03)
    assert all(1 <= image.spent_s <= 4 for image in mixed)
    assert mixed == images(steady(5, 4000), Mix(urgent_share=0.15, small_share=0.7), seed=1)


def test_company_is_who_was_sent_and_does_not_stand_in_line_yet() -> None:
    house = House([Image(4.0, 3.0), Image(5.0, 1.0)], EXACT, devices=1, seed=0)
    seen: list[int] = []

    class Looks(Delay):
        def arrived(self, number: int) -> None:
            super().arrived(number)
            seen.append(house.company())

    house.live(Looks(0.0))

    # At 4.0 the second has just been sent.
    assert seen == [1, 0]


def test_the_figures_of_three_images_by_hand() -> None:
    arrived = [Image(0.0, 1.0), Image(10.0, 2.0), Image(20.0, 3.0, Lane.URGENT)]
    house = House(arrived, EXACT, devices=1, seed=0)
    house.fates.done_at = {0: 5.0, 1: 37.5, 2: 26.0}
    house.fates.given_up_at = {2: 21.0}
    house.fates.runs = [Run(0, (0, 1), 3.0, 5.0, has_room=True)]

    figures = measure(arrived, house.fates, devices=1)

    # Answered after 5 + 1 + 1 s, and 27.5 + 2 + 1 s, which is late; the third was put off and took 6 + 3 + 1 s.
    assert (figures.p50_s, figures.p99_s, figures.compensated_p95_s) == (30.5, 30.5, 10.0)
    assert figures.missed_percent == pytest.approx(200 / 3)
    assert (figures.in_time_per_s, figures.busy_percent, figures.device_s_per_image) == (1 / 20, 10.0, 1.0)
    assert (figures.compensated_percent, figures.line_and_device_p99_s) == (100.0, 27.5)


def test_a_percentile_is_a_value_that_was_there() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 3.0, 4.0, 4.0]
    assert percentile([], 0.5) == 0.0


@given(jobs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6))
def test_the_bound_answers_as_many_as_the_best_of_all_orders(jobs: list[tuple[int, int]]) -> None:
    # One device that reads one image a second, and images that may begin until some whole seconds after they came.
    cost = Cost(costs.LIMIT, full_factor=1.0, noise=0.0)
    arrived = [Image(float(at), 29.0 - patience_s, scale=1.0) for at, patience_s in jobs]

    def answered(order: Sequence[int]) -> int:
        slot = count = 0
        for number in order:
            at, patience_s = jobs[number]
            if max(slot, at) <= at + patience_s:
                slot, count = max(slot, at) + 1, count + 1
        return count

    most = max(answered(order) for order in permutations(range(len(jobs))))
    assert least_missed_percent(arrived, cost, devices=1) == pytest.approx(100 * (1 - most / len(jobs)))
