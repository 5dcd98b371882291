"""The lock of the transport's own sweep, left behind by a process that died with it."""

import os
import signal
import time

import pytest
import redis
from celery import Celery
from kombu.transport.redis import Mutex

from pipeline.flow import CELERY_POOLS, Pool
from tests.faults.processes import spawn
from tests.faults.servers import Place
from tests.integration.transport.conftest import START_LIMIT_S, Crew
from tests.integration.transport.witness import await_notes, ring_witness, serve_witness, taken_from
from tests.patience import PATIENCE
from workers.app import make_app, unacked_index
from workers.settings import Settings

pytestmark = pytest.mark.services

BACK_WITHIN_S = 10.0 * PATIENCE
LONG_AGO = 1.0
"""Unix seconds."""


def die_with_the_lock(pool: Pool) -> None:
    """Take the lock as the transport does, with the pool's own settings, and never give it back."""
    with make_app(Settings(), pool).connection_for_write() as connection:
        channel = connection.default_channel
        with channel.conn_or_acquire() as client, Mutex(client, channel.unacked_mutex_key, channel.unacked_mutex_expire):
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("pool", CELERY_POOLS)
def test_a_lock_that_a_dead_process_left_holds_a_message_back_for_seconds_only(
    place: Place, publisher: Celery, client: "redis.Redis", crew: Crew, pool: Pool
) -> None:
    notes = place.folder / f"{pool.value}.notes"
    holder = crew.start("holder", serve_witness, pool, notes)
    ring_witness(publisher, pool)
    (note,) = await_notes(notes, 1, within_s=START_LIMIT_S)
    taken = taken_from(client, pool, note, notes)
    holder.kill()
    holder.join()
    heir = crew.start("heir", serve_witness, pool, notes)

    dying = spawn(die_with_the_lock, pool, environment=place.environment(), log=place.folder / "dying.log")
    dying.join(START_LIMIT_S)
    left_s, left_at = client.pttl(f"unacked_mutex.{pool.value}") / 1000, time.time()
    assert (dying.exitcode, left_s > 0) == (-signal.SIGKILL, True)
    client.zadd(unacked_index(pool), {taken.tag: LONG_AGO})

    _, second = await_notes(notes, 2, within_s=BACK_WITHIN_S)
    assert (second.pid, second.is_redelivered) == (heir.pid, True)
    # The lock did hold it back.
    assert left_at + left_s - 0.1 <= second.at
