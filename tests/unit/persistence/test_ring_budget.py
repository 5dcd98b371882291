"""How many doorbells a round may ring again, by hand."""

from pipeline.persistence.ledger.sweep import RECENT_ROUNDS, RingBudget


def test_a_quiet_house_may_ring_fifty_a_round() -> None:
    budget = RingBudget()

    assert [budget.next_round(0) for _ in range(3)] == [50, 50, 50]


def test_a_busy_one_may_ring_a_tenth_of_what_it_claims() -> None:
    budget = RingBudget()

    assert [budget.next_round(2000) for _ in range(3)] == [200, 200, 200]


def test_fifty_and_a_tenth_meet_at_five_hundred_claims() -> None:
    assert [RingBudget().next_round(count) for count in (499, 500, 510, 519, 520)] == [50, 50, 51, 51, 52]


def test_the_mean_of_the_recent_rounds_counts_and_older_ones_are_forgotten() -> None:
    budget = RingBudget()

    assert [budget.next_round(count) for count in (3000, 1000, 2000)] == [300, 200, 200]
    assert [budget.next_round(0) for _ in range(RECENT_ROUNDS)][-1] == 50
