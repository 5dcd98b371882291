"""The rows of the table: which there are, how many cases each takes, and which are too long for `make faults`."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.arena import Row, Tell
from tests.faults.control import control
from tests.faults.doorbells import emptied_valkey, frozen_worker, quiet_backlog, tripled_doorbells
from tests.faults.kills import killed_postgres, killed_workers
from tests.faults.outages import away_valkey, deaf_connections, dripping_source, frozen_valkey
from tests.faults.recovery import frozen_inference, killed_inference
from tests.faults.servers import Servers
from tests.faults.tensor_row import KILLS, SAYS, killed_tensor_users

Story = Callable[[Servers, Tell], Row]
PRODUCT_CASES = 400
"""About what an open-loop load sends in its time: how many it is depends on the machine."""
OF_THE_PRODUCT = "`secondread up` itself with its model, guard and supervisor, under a load whose arrivals do not wait for answers"
B1_SAYS = (
    f"**B1** is {OF_THE_PRODUCT}; recovered: from the kill to the end of the first 2 s in which as many cases end as 95 % of the"
    " throughput before it. Unanswered: no answer of any kind a second after the deadline of 30 s."
)
B2_SAYS = f"**B2** is {OF_THE_PRODUCT}; recovered: as B1, from the moment at which the model is back."


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
        "B1": Planned(PRODUCT_CASES, killed_inference, says=B1_SAYS),
        "B2": Planned(2 * PRODUCT_CASES, frozen_inference, is_long=True, says=B2_SAYS),
        "B3": Planned(
            0,
            away_valkey,
            is_long=True,
            says="**B3** from Valkey's return until a case accepted after it has its result. While it is away the door accepts, for"
            " PostgreSQL alone suffices, and the guard answers.",
        ),
        "B4": Planned(0, frozen_valkey, says="**B4** from SIGCONT until a case accepted after it has its result; no submission takes 1 s."),
        "B5": Planned(
            0,
            deaf_connections,
            is_long=True,
            says="**B5** from the moment when new connections work (at once, or after 15 s) until a case accepted after it has its result:"
            " the old ones stay open and swallow every byte.",
        ),
        "B10": Planned(
            0,
            dripping_source,
            says="**B10** the slowest case of another source while the archive dripped; a fetch is given up after 8 s, its case"
            " answered and read later.",
        ),
        "D4": Planned(KILLS, killed_tensor_users, is_long=True, says=SAYS),
    }
