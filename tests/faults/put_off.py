"""Sends put-off cases back to work at once: the guard, whose part it is, does not run here, and a run does not wait for minutes."""

import time

from sqlalchemy import text

from pipeline.errors import LedgerUnavailable
from pipeline.flow import Pool
from pipeline.persistence.ledger.compensation import release
from pipeline.persistence.ledger.engine import open_ledger, run
from workers.app import make_app
from workers.doorbell import ring
from workers.settings import Settings
from workers.wiring import secret_of

LOOK_EVERY_S = 1.0
AT_ONCE = 100
DUE = text("UPDATE cases SET due_at = clock_timestamp(), worklist_at = NULL WHERE state = 'deferred'")
# What came too late to be begun is left to the guard: its delay runs until the deadline.
LATE = text("""
UPDATE cases SET lane = 'compensation', due_at = clock_timestamp()
WHERE ended_at IS NULL AND claimed_by IS NULL AND due_at > published_at AND deadline_at < clock_timestamp() AND lane <> 'compensation'
""")


def release_put_off() -> None:
    """Look once a second, until it is killed."""
    settings = Settings()
    ledger, app = open_ledger(secret_of(settings, "database_url"), connections=1, application="releaser"), make_app(settings)
    while True:
        try:
            run(ledger.relaxed, DUE)
            run(ledger.relaxed, LATE)
            ring(app, Pool.INTAKE, release(ledger, limit=AT_ONCE))
        except LedgerUnavailable:
            pass  # the server was killed, as is the sense of the run
        time.sleep(LOOK_EVERY_S)
