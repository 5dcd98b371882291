"""The product itself as a user starts it, under an open-loop load that is a share of what it was measured to do."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from pipeline.cases.states import TERMINAL
from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.flow import DEADLINE_S
from pipeline.imaging.phantom import phantom
from tests.acceptance.running import Deployment, running_deployment
from tests.faults.arena import Tell
from tests.faults.checker import EventRow, ResultRow, Seen, Verdict, allowed_edges, bounded_attempts, is_double, one_result, reexecuted
from tests.faults.observe import Watcher, republished
from tests.faults.open_load import OpenLoad, Sent
from tests.load.clients import Clients, multipart

CAPACITY_S, WARM_S = 5.0, 2.0
IN_FLIGHT = 32
"""Clients that wait for their answers while the capacity is measured: two full batches."""
STUDIES = 8
LOOK_EVERY_S = 0.1
QUIET_LIMIT_S = 90.0
SETTINGS = {"SECONDREAD_DEADLINE_S": f"{DEADLINE_S:.0f}", "SECONDREAD_PRELIMINARY_AFTER_S": "10"}
GRACE_S = 1.0
"""An answer that is later than this after its deadline is none."""

_ENDED_AT = "SELECT EXTRACT(EPOCH FROM ended_at)::float8 FROM cases WHERE state = 'completed'"
_IN_WORK = "SELECT count(*) FROM cases WHERE ended_at IS NULL AND (result_version = 0 OR lane <> 'compensation')"
_UNANSWERED = """
SELECT count(*) FROM cases c LEFT JOIN (SELECT case_id, min(created_at) AS at FROM results GROUP BY case_id) r ON r.case_id = c.id
WHERE COALESCE(r.at, CASE WHEN c.state IN ('failed', 'cancelled') THEN c.ended_at END, 'infinity')
      > c.deadline_at + make_interval(secs => %s)
"""
_PRELIMINARY_SHARE = """
SELECT COALESCE(avg(CAST(EXISTS (SELECT FROM results r WHERE r.case_id = c.id AND r.kind = 'preliminary') AS integer)), 0)::float8
FROM cases c WHERE accepted_at >= to_timestamp(%s) AND accepted_at < to_timestamp(%s)
"""


@dataclass
class Product:
    """A running deployment, how much it can do, and how it is looked at."""

    deployment: Deployment
    watcher: Watcher
    tell: Tell
    bodies: list[tuple[bytes, str]]
    begun: float = field(default_factory=time.monotonic)

    def capacity(self) -> float:
        """Cases a second that it answers while two full batches of clients wait."""
        clients = Clients(self.deployment.access.url, self.deployment.access.api_key, self.bodies, in_flight=IN_FLIGHT)
        with clients.loaded() as answered:
            self.pass_time(WARM_S, "warming up")
            before = len(answered.latencies)
            self.pass_time(CAPACITY_S, "measuring what it can do")
            return (len(answered.latencies) - before) / CAPACITY_S

    @contextmanager
    def loaded(self, rate: float) -> Iterator[Sent]:
        """So many cases a second while the block runs."""
        with OpenLoad(self.deployment.access.url, self.deployment.access.api_key, self.bodies, rate=rate).running() as sent:
            yield sent

    def pass_time(self, seconds: float, saying: str) -> None:
        """Let the load run."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tell(self.watcher.completed(), saying)
            time.sleep(LOOK_EVERY_S)

    def await_quiet(self) -> bool:
        """Wait until every case has ended, or was answered and put off; False where that takes too long."""
        until = time.monotonic() + QUIET_LIMIT_S
        while time.monotonic() < until:
            self.tell(self.watcher.completed(), "draining")
            if self.watcher.rows(_IN_WORK) == [(0,)]:
                return True
            time.sleep(LOOK_EVERY_S)
        return False

    def ended_at(self) -> list[float]:
        """When each completed case ended, in Unix seconds."""
        return [at for (at,) in self.watcher.rows(_ENDED_AT)]

    def preliminary_share(self, since: float, until: float) -> float:
        """Of the cases that were accepted in this time, how many had a preliminary answer."""
        ((share,),) = self.watcher.rows(_PRELIMINARY_SHARE, since, until)
        return float(share)

    def republished(self) -> dict[str, int]:
        """What the sweepers have rung again."""
        counts: defaultdict[str, int] = defaultdict(int)
        for log in sorted(Path(self.deployment.logs).glob("sweeper-*.log")):
            for cause, count in republished(log).items():
                counts[cause] += count
        return dict(counts)

    def judge(self, sent: Sent, *, most_reexecuted: int) -> Verdict:
        """Check everything that does not need the stubs' digests."""
        seen = self.watcher.seen()
        ((unanswered,),) = self.watcher.rows(_UNANSWERED, GRACE_S)
        return judge_product(sent.promised, seen, unanswered=int(unanswered), most_reexecuted=most_reexecuted)


def judge_product(promised: Sequence[UUID], seen: Seen, *, unanswered: int, most_reexecuted: int) -> Verdict:
    """Judge a run of the product; a case that was answered and put off is not lost."""
    results: defaultdict[UUID, list[ResultRow]] = defaultdict(list)
    for result in seen.results:
        results[result.case_id].append(result)
    events: defaultdict[UUID, list[EventRow]] = defaultdict(list)
    for event in seen.events:
        # An answer by the clock without a move is an event that enters the state it leaves.
        if event.left != event.entered:
            events[event.case_id].append(event)
    rows = {row.case_id: row for row in seen.cases}
    again = reexecuted(seen.events)
    open_cases = {row.case_id for row in seen.cases if row.state not in TERMINAL and row.result_version == 0}
    return Verdict(
        cases=len(seen.cases),
        lost=len(open_cases | (set(promised) - rows.keys())),
        double=sum(is_double(results[case_id], events[case_id]) for case_id in rows),
        late=sum(row.ended_at is None or row.ended_at - row.accepted_at > DEADLINE_S for row in seen.cases),
        unanswered=unanswered,
        failed=sum(row.state in ("failed", "cancelled") for row in seen.cases),
        reexecuted=again,
        violations=(*one_result(rows, results), *allowed_edges(rows, events), *bounded_attempts(again, most_reexecuted)),
    )


@contextmanager
def running_product(tell: Tell) -> Iterator[Product]:
    """`secondread up` with servers of its own and one inference worker, and small made-up studies to send."""
    images = [phantom(seed, rows_px=200, columns_px=160)[0] for seed in range(STUDIES)]
    bodies = [multipart(phantom_instance(image, PhantomStudy(name=f"small-{number}"))) for number, image in enumerate(images)]
    begun = time.monotonic()
    tell(0, "starting")
    with running_deployment(**SETTINGS) as deployment:
        watcher = Watcher(deployment.database_url)
        try:
            yield Product(deployment, watcher, tell, bodies, begun)
        finally:
            watcher.close()
