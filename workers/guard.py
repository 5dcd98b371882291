"""The guard: answers by the clock what is not read in time. It needs PostgreSQL alone.

Two run; one leads. What it writes is guarded by what it read, so that even two leaders would answer each case once.
"""

import signal
import threading
import time
from types import FrameType

from pipeline.callbacks.event import CaseFacts
from pipeline.cases.compensation import Share
from pipeline.cases.preliminary import OpenCase, preliminary_report
from pipeline.errors import Unavailable
from pipeline.flow import Lane, Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case, configure_logs, logger
from pipeline.persistence.ledger.compensation import look_round, release
from pipeline.persistence.ledger.guard import OwedCase, give_answer, owed_cases
from pipeline.persistence.ledger.leadership import Leadership
from pipeline.persistence.ledger.outcomes import Answer
from pipeline.persistence.ledger.sweep import last_event_id
from schemas.report import PreliminaryReason
from workers.app import make_app
from workers.doorbell import Publisher, ring, ring_delivery
from workers.endings import callback_for
from workers.messenger import Messenger
from workers.pool_process import say_ready
from workers.settings import Settings
from workers.wiring import Services, open_services

ROUND_S = 0.25
"""How late an answer by the clock may be."""
ASK_EVERY_S = 1.0
"""How often the leader confirms that it leads, and the other asks whether it may."""
SILENCE_S = 2.5
"""A guard that is frozen loses the lead after so long: a deadline does not wait."""
RELEASE_EVERY = 4
"""Rounds between two looks at the compensation queue."""
SLICE = 200
"""Most answers in a round: a database that comes back after an outage is not asked for all at once."""


class Guard:
    """One round a quarter of a second; every round is safe beside another guard."""

    def __init__(self, services: Services, app: Publisher) -> None:
        self._services, self._app = services, app
        self._share = Share()
        self._seen_id = last_event_id(services.ledger)
        self._round_no = 0

    def round(self) -> None:
        """Answer what is owed; now and then, send put-off cases back to work.

        Raises
        ------
        Unavailable
            The ledger is away; the next round tries again.
        """
        settings = self._services.settings
        owed = owed_cases(self._services.ledger, wait_s=settings.preliminary_after_s, reserve_s=settings.answer_reserve_s, limit=SLICE)
        for case in owed:
            with about_case(case.case_id):
                self._answer(case)
        if self._round_no % RELEASE_EVERY == 0:
            self._release()
        self._round_no += 1
        metrics.GUARD_LAST_SUCCESS.set_to_current_time()

    def _answer(self, case: OwedCase) -> None:
        now = self._services.clock.now()
        reason: PreliminaryReason = "deadline" if case.is_due else "inference-wait"
        report = None
        if case.result_version == 0:
            report = preliminary_report(OpenCase(case.case_id, 1, case.input, case.work), reason, at=now)
        facts = CaseFacts(
            case.case_id,
            "deferred" if case.is_put_off else case.state.value,
            Lane.COMPENSATION if case.is_put_off else case.lane,
            report.version if report else case.result_version,
            case.client_reference,
            result_kind="preliminary",
            outcome="not_yet_read",
        )
        callback = callback_for(self._services, case.endpoint_id, "case.preliminary" if report else "case.deferred", facts)
        answer = Answer(report.version, report.kind, report.outcome, report.model_dump_json()) if report else None
        if not give_answer(self._services.ledger, case, answer, reason=reason, callback=callback):
            return  # it moved since it was read: the next round sees where it stands
        if report:
            metrics.PRELIMINARY_ANSWERS.labels(case.lane.value, reason).inc()
        if case.is_put_off:
            metrics.CASES_PUT_OFF.labels(case.lane.value, reason).inc()
        logger().warning("answered_by_the_clock", reason=reason, state=case.state.value, is_put_off=case.is_put_off)
        if callback is not None:
            ring_delivery(self._app, callback.event_id)

    def _release(self) -> None:
        room = look_round(self._services.ledger, after_id=self._seen_id)
        self._seen_id = room.last_id
        count = self._share.release_count(
            waiting_count=room.waiting_count, running_count=room.running_count, completed_count=room.completed_count
        )
        if count:
            rungs = release(self._services.ledger, limit=count)
            ring(self._app, Pool.INTAKE, rungs)
            if rungs:
                logger().info("compensation_released", count=len(rungs))


def main() -> None:
    """Run the guard: `python -m workers.guard`."""
    settings = Settings()
    configure_logs(level=settings.log_level, style=settings.log_format, process="guard")
    stop = threading.Event()

    def stopping(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    with (
        open_services(settings, role="guard", connections=2) as services,
        Leadership(services.ledger, "guard", silence_s=SILENCE_S) as leadership,
    ):
        say_ready(settings)
        watch(services, leadership, stop)


def watch(services: Services, leadership: Leadership, stop: threading.Event) -> None:
    """Do rounds while this instance leads, and follow while it does not."""
    publisher = Messenger(make_app(services.settings))
    guard: Guard | None = None
    asked_at = -ASK_EVERY_S
    leads = False
    while not stop.wait(ROUND_S if leads else ASK_EVERY_S):
        if time.monotonic() - asked_at >= ASK_EVERY_S:
            asked_at, leads = time.monotonic(), leadership.is_leader()
        if not leads:
            guard = None
            continue
        try:
            guard = guard or Guard(services, publisher)
            guard.round()
        except Unavailable as error:
            logger().warning("round_cut_short", code=error.code)
    publisher.close()


if __name__ == "__main__":
    main()
