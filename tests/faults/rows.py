"""The rows of the table: which there are, how many cases each takes, and which are too long for `make faults`."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.arena import Row, Tell
from tests.faults.control import control
from tests.faults.doorbells import emptied_valkey, frozen_worker, quiet_backlog, tripled_doorbells
from tests.faults.kills import killed_postgres, killed_workers
from tests.faults.servers import Servers

Story = Callable[[Servers, Tell], Row]


@dataclass(frozen=True, slots=True)
class Planned:
    """A row before it runs."""

    cases: int
    story: Story
    is_long: bool = False
    """Runs with `--long` alone, or where `--only` names it."""
    says: str = ""
    """One sentence for the page: what its time is measured from and to, and what else is asked."""


def planned_rows(cases: int, kills: int) -> dict[str, Planned]:
    """Every row by its name, in the order in which they run; A1 takes so many cases and kills, the others their share."""
    fifth, few = max(400, cases // 5), max(1, kills // 4)
    return {
        "A1": Planned(cases, lambda servers, tell: killed_workers(servers, tell, cases=cases, kills=kills)),
        "A2": Planned(2 * fifth, lambda servers, tell: killed_workers(servers, tell, cases=2 * fifth, kills=kills, valkey_too=True)),
        "A3": Planned(few * 200, lambda servers, tell: killed_postgres(servers, tell, kills=few)),
        "A4": Planned(cases, lambda servers, tell: control(servers, tell, cases=cases, kills=few)),
        "A6": Planned(fifth // 2, lambda servers, tell: tripled_doorbells(servers, tell, cases=fifth // 2)),
        "A7": Planned(8, frozen_worker),
        "A8": Planned(fifth, lambda servers, tell: emptied_valkey(servers, tell, cases=fifth, times=3)),
        "A9": Planned(fifth, lambda servers, tell: quiet_backlog(servers, tell, cases=fifth)),
    }
