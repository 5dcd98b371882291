"""Ringing a Redis that stops to answer while it is in use: how long it holds the publisher, and what becomes of the message."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis
from celery import Celery

from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Rung
from tests.acceptance.running import eventually
from tests.integration.transport.conftest import Crew, frozen, publishing
from tests.integration.workers import crashing_worker
from tests.integration.workers.stub_cases import StubCases
from tests.patience import PATIENCE
from workers.app import unacked_hash
from workers.doorbell import ring
from workers.embedded.valkey import EmbeddedValkey

pytestmark = pytest.mark.services

HELD_S = 3.0 * PATIENCE
RINGS = 3
"""The first finds a connection that was good, the next find none."""
GIVES_UP_S = 0.9
"""A publisher waits a second for an answer."""
ENDS_WITHIN_S = 30.0
QUEUE = "reporting\x06\x166"


def held_s(publisher: Celery, rungs: Sequence[Rung]) -> float:
    """Seconds that a ring takes."""
    begun = time.monotonic()
    ring(publisher, Pool.REPORTING, rungs)
    return time.monotonic() - begun


def test_a_redis_that_goes_away_while_it_is_in_use_holds_a_publisher_for_three_seconds_at_most(
    server_folder: Path, cases: StubCases
) -> None:
    rungs = cases.waiting(Pool.REPORTING, 1)
    with EmbeddedValkey(server_folder, is_durable=False) as leaving, publishing(leaving.url) as publisher:
        ring(publisher, Pool.REPORTING, rungs)
        leaving.stop()

        took_s = [held_s(publisher, rungs) for _ in range(RINGS)]

    assert max(took_s) < HELD_S


def test_a_message_that_a_frozen_redis_took_although_its_publisher_gave_up_has_one_effect(
    publisher: Celery, client: "redis.Redis", server: EmbeddedValkey, cases: StubCases, crew: Crew
) -> None:
    rungs = cases.waiting(Pool.REPORTING, 2)
    ring(publisher, Pool.REPORTING, rungs[:1])

    with frozen(server.pid):
        took_s = [held_s(publisher, rungs[1:]) for _ in range(RINGS)]

    assert took_s[0] >= GIVES_UP_S
    assert max(took_s) < HELD_S
    assert eventually(lambda: client.llen(QUEUE) == 2, within_s=ENDS_WITHIN_S)
    # As the sweeper does, for whom the second message was never sent.
    ring(publisher, Pool.REPORTING, rungs[1:])
    assert client.llen(QUEUE) == 3
    crew.start("worker", crashing_worker.main, Pool.REPORTING, "nowhere")
    assert eventually(lambda: client.llen(QUEUE) + client.hlen(unacked_hash(Pool.REPORTING)) == 0, within_s=ENDS_WITHIN_S)
    assert [(cases.said(rung.case_id), cases.rows()[rung.case_id].attempt - rung.attempt) for rung in rungs] == [((1, 1, 1), 1)] * 2
