"""The load process: submits cases as the door does, and writes down what its client saw."""

import random
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy import exc
from uuid6 import uuid7

from pipeline.deadline import utc_now
from pipeline.errors import LedgerUnavailable
from pipeline.flow import Lane
from pipeline.persistence.ledger.admission import NewCase
from pipeline.persistence.ledger.engine import Ledger, open_ledger
from pipeline.persistence.ledger.sweep import open_counts
from schemas.work import CaseInput, ReceivedInstance
from tests.faults.echo import Echo
from tests.faults.history import Outcome, Submit, lines
from workers.app import make_app
from workers.doorbell import Publisher
from workers.gateway.admission import admit
from workers.messenger import Messenger
from workers.settings import Settings
from workers.wiring import secret_of

TENANT = UUID(int=1)
TOGETHER = 16
"""Cases that one commit takes."""
URGENT_SHARE = 0.1
DEADLINE_S = 20 * 60.0
"""Far away: here a case ends by its work alone. Whoever is late by the product's deadline is counted by the checker."""
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """What is submitted."""

    cases: int
    most_open: int = 400
    """The load waits while so many cases are open."""
    seed: int = 1
    copies: int = 1
    reference: str | None = None
    together: int = TOGETHER
    deadline_s: float = DEADLINE_S
    """Within the product's, the guard answers."""
    source: str = "uploads"
    pause_s: float = 0.0
    """Between two submissions."""
    urgent_share: float = URGENT_SHARE


def submit_all(load: Load, history: Path, stop: Path) -> None:
    """Submit until so many were promised, or until the stop file is there."""
    settings = Settings()
    ledger = open_ledger(secret_of(settings, "database_url"), connections=2, application="secondread faults")
    app = make_app(settings)
    publisher = Echo(app, copies=load.copies) if load.copies > 1 else Messenger(app)
    lanes = random.Random(load.seed)
    promised = 0
    with history.open("a", encoding="ascii", buffering=1) as sink:
        while promised < load.cases and not stop.exists():
            if _open_count(ledger) > load.most_open:
                time.sleep(PAUSE_S)
                continue
            cases = [new_case(load, lanes) for _ in range(min(load.together, load.cases - promised))]
            began_at = time.time()
            outcome = submit_cases(ledger, publisher, cases)
            ended_at = time.time()
            sink.write(lines(Submit(case.id, case.input.instances[0].key, began_at, ended_at, outcome) for case in cases))
            if outcome == "ok":
                promised += len(cases)
            else:
                time.sleep(PAUSE_S)
            time.sleep(load.pause_s)
    publisher.close()


def submit_cases(ledger: Ledger, publisher: Publisher, cases: list[NewCase]) -> Outcome:
    """Admit cases in one commit, as the door does, and say what their client was told."""
    try:
        admit(ledger, publisher, cases)
    except LedgerUnavailable as error:
        cause = error.__cause__
        # A connection that broke under the statement: the commit may have been the last thing that it did.
        return "unknown" if isinstance(cause, exc.DBAPIError) and cause.connection_invalidated else "fail"
    return "ok"


def _open_count(ledger: Ledger) -> int:
    try:
        return sum(count for _, count, _ in open_counts(ledger))
    except LedgerUnavailable:
        return 0


def new_case(load: Load, lanes: random.Random) -> NewCase:
    """A case of one instance that nobody reads: its key stands for the image."""
    case_id, now = UUID(bytes=uuid7().bytes), utc_now()
    return NewCase(
        id=case_id,
        tenant_id=TENANT,
        lane=Lane.URGENT if lanes.random() < load.urgent_share else Lane.ROUTINE,
        input=CaseInput(source=load.source, instances=(ReceivedInstance(key=f"{case_id.hex}/received-0000.dcm"),)),
        accepted_at=now,
        deadline_at=now + timedelta(seconds=load.deadline_s),
        idempotency_key=case_id.hex,
        fingerprint=case_id.bytes * 2,
        client_reference=load.reference,
    )
