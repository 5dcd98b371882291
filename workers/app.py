"""The Celery application and its queues: one settings function for every process.

The values and why: `docs/decisions/0001-ledger-and-doorbell.md`. What is measured there: late acknowledgement
alone loses messages, so a message is only a doorbell; the ledger decides whether there is work.
"""

from celery import Celery

from pipeline.flow import CELERY_POOLS, Lane, Pool
from workers.settings import Settings
from workers.transport import BundledEvents, SteadyCelery
from workers.wiring import secret_of

PRIORITY = {Lane.URGENT: 0, Lane.ROUTINE: 6, Lane.COMPENSATION: 9}
"""Redis runs 0 first. A message without a priority would land among the urgent ones."""

VISIBILITY_S = {Pool.INTAKE: 30, Pool.INFERENCE: 12, Pool.REPORTING: 30, Pool.DELIVERY: 60}
"""Seconds from the fetch of a message until another worker may have it. An inference message ends at once: its cases wait in the line."""


def queue_keys(pool: Pool) -> tuple[str, ...]:
    """The lists that a pool's queue is in Redis: one for each step of priority, the most urgent first."""
    return tuple(pool.value + step for step in ("", "\x06\x163", "\x06\x166", "\x06\x169"))


def unacked_index(pool: Pool) -> str:
    """The sorted set of messages that a pool's workers hold."""
    return f"unacked_index.{pool.value}"


def unacked_hash(pool: Pool) -> str:
    """The hash of the same messages' bodies."""
    return f"unacked.{pool.value}"


def make_app(settings: Settings, pool: Pool | None = None) -> Celery:
    """Build the application; `pool` is None in a process that only publishes."""
    app = SteadyCelery("secondread", broker=secret_of(settings, "redis_url"), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_acks_late=True,
        task_acks_on_failure_or_timeout=True,
        task_reject_on_worker_lost=False,
        task_ignore_result=True,
        task_publish_retry=False,
        task_default_queue="unrouted",
        task_default_priority=PRIORITY[Lane.ROUTINE],
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        # Events cost a millisecond a case: a worker sends them once somebody watches, as Flower asks for every few seconds.
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_eta_task_limit=100,
        worker_enable_remote_control=True,
        # One queue a pool; lanes are priorities inside it.
        task_routes={f"{each.value}.*": {"queue": each.value} for each in CELERY_POOLS},
        broker_connection_retry_on_startup=True,
        # A worker outlives any outage of the broker: a new process would only load its model again.
        broker_connection_max_retries=None,
        broker_transport="workers.transport:LeanTransport",
        broker_transport_options=_transport_options(pool),
    )
    app.steps["consumer"].add(BundledEvents)
    return app


def _transport_options(pool: Pool | None) -> dict[str, float | str | bool]:
    bounds: dict[str, float | str | bool] = {
        # Both connection and call are bounded: the default waits for ever on a frozen Redis. A worker's event loop stands still
        # meanwhile, also while it makes a new connection that nobody answers.
        "socket_timeout": 1 if pool is None else 2,
        "socket_connect_timeout": 1,
        "socket_keepalive": True,
        # How often a BRPOP whose answer is overdue is looked for: a deaf connection is dropped within twice this and a second.
        "health_check_interval": 2,
        # These bound the connection retry that hides inside a publish.
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
        "interval_max": 0.1,
    }
    if pool is None:
        return bounds
    # Names of its own: among apps that share them, the shortest visibility timeout wins for all.
    return bounds | {
        "visibility_timeout": VISIBILITY_S[pool],
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 5,
        "unacked_key": unacked_hash(pool),
        "unacked_index_key": unacked_index(pool),
        "unacked_mutex_key": f"unacked_mutex.{pool.value}",
    }
