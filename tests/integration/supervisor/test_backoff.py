"""How long a process that died waits."""

from workers.supervisor import Backoff


def test_the_wait_before_a_restart_doubles_to_its_most_and_begins_anew_after_a_long_life() -> None:
    backoff, waits_s = Backoff(), [0.0]
    for uptime_s in (1, 1, 1, 1, 1, 1, 59.9, 60):
        waits_s.append(backoff.next_s(waits_s[-1], uptime_s=uptime_s))
    assert waits_s[1:] == [0.5, 1, 2, 4, 8, 10, 10, 0.5]
