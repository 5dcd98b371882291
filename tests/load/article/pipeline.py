"""The real pipeline on emulated devices, and what its clients and its ledger saw of a load.

Real: PostgreSQL, Valkey, the door's admission, Celery, claims, leases, doorbells, group commits, the waiting line, the former with
its rule, the tensor store, the runner, the sweeper, the guard. Not real: the network sleeps, intake makes a small tensor of the
case's id instead of decoding an image, reporting words a short report, and no HTTP stands before the admission.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from pipeline.deadline import utc_now
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed
from tests.faults.load import Load
from tests.faults.observe import Watcher, events_of
from tests.faults.processes import BESIDE, await_ready, begin
from tests.faults.servers import Place, Servers
from tests.faults.stub_stages import Manner, StubIntake, serve_pool
from tests.load.article.scale import COST, DEADLINE_S, DEVICES, SETTINGS, Phase
from tests.load.in_flight import Flight, Wait, keep_in_flight, waits_of
from tests.load.sleeping import serve, write_sleeping_model
from workers.intake import Prepared
from workers.stage_task import StageClock

ENDLESS = 10_000_000
TENSOR_LIFETIME = timedelta(minutes=10)
LOOK_EVERY_S = 0.2
DRAIN_LIMIT_S = 30.0
THREADS = 4

_ENDS = """
SELECT count(*), count(*) FILTER (WHERE state <> 'completed'),
       count(*) FILTER (WHERE NOT EXISTS (SELECT FROM results r
           WHERE r.case_id = c.id AND r.kind = 'final' AND r.created_at <= c.deadline_at))
FROM cases c WHERE client_reference = %s
"""

Tell = Callable[[str], None]


class LeanIntake(StubIntake):
    """Intake that parks a real, small model input: other bytes for every case, so that a mix-up would show."""

    def do(self, case: Claimed, clock: StageClock) -> Prepared:
        """Make a model input of the case's id."""
        stub = super().do(case, clock)
        services = self._runtime.services
        side_px = services.cards[stub.prepared.model][0].input.side_px
        image = np.resize(np.frombuffer(case.case_id.bytes, np.uint8), (1, 1, side_px, side_px))
        handle = services.tensors.put(image, case_id=case.case_id, generation=case.attempt, expires_at=utc_now() + TENSOR_LIFETIME)
        return replace(stub, prepared=stub.prepared.model_copy(update={"model_input": handle, "case_id": case.case_id}))


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one phase's cases."""

    cases: int
    incomplete: int
    """Without a final result when all was quiet."""
    timed_out: int
    """Without a final result by their deadline: answered preliminarily, late, or not at all."""
    waits: tuple[Wait, ...]
    batch_images: tuple[int, ...]
    reasons: Counter[str]
    """Why batches fired."""

    @property
    def waits_s(self) -> list[float]:
        """From the moment at which a case was due to be sent to its first answer."""
        return [wait.answered_at - wait.due_at for wait in self.waits]

    @property
    def lateness_s(self) -> list[float]:
        """How late the load sent."""
        return [wait.sent_at - wait.due_at for wait in self.waits]


@dataclass
class Pipeline:
    """A running pipeline."""

    place: Place
    watcher: Watcher
    tell: Tell

    def carry(self, name: str, phase: Phase, seconds: float, *, seed: int) -> Seen:
        """Load it for so long, and let it work off what waits."""
        stop = self.place.folder / f"stop-{name}"
        looks = Load(cases=0, deadline_s=DEADLINE_S, reference=name, urgent_share=0.0)
        flight = Flight(name, ENDLESS, ENDLESS, gap_s=1 / phase.rate, seed=seed, looks=looks)
        fired_before = len(self._fired())
        load, ready = begin(self.place, f"load-{name}", keep_in_flight, flight, self.place.folder / "history.jsonl", stop)
        await_ready(load, ready)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tell(f"{phase.name}: {self.watcher.completed()} answered so far")
            time.sleep(LOOK_EVERY_S)
        stop.touch()
        load.join()
        if load.exitcode != 0:
            raise RuntimeError(f"the load ended with {load.exitcode}; see {ready.with_suffix('.log')}")
        self._drain(phase)
        ((cases, incomplete, timed_out),) = self.watcher.rows(_ENDS, name)
        fired = self._fired()[fired_before:]
        return Seen(
            cases=cases,
            incomplete=incomplete,
            timed_out=timed_out,
            waits=tuple(waits_of(self.place.folder, name)),
            batch_images=tuple(each["n"] for each in fired),
            reasons=Counter(each["reason"] for each in fired),
        )

    def _drain(self, phase: Phase) -> None:
        until = time.monotonic() + DRAIN_LIMIT_S
        while self.watcher.open_count() and time.monotonic() < until:
            self.tell(f"{phase.name}: working off what waits")
            time.sleep(LOOK_EVERY_S)

    def _fired(self) -> list[dict[str, Any]]:
        fired = events_of([self.place.folder / f"{name}.log" for name in _inference_names()], "batch_fired")
        return sorted(fired, key=lambda each: str(each["timestamp"]))


def _inference_names() -> list[str]:
    return [f"inference-{number}" for number in range(1, DEVICES + 1)]


@contextmanager
def running_pipeline(servers: Servers, tell: Tell) -> Iterator[Pipeline]:
    """Start every process on an empty ledger; end all of them."""
    fresh = servers.fresh("article")
    write_sleeping_model(fresh.folder / "models" / "sleeping", COST)
    place = replace(fresh, settings={**SETTINGS, "SECONDREAD_MODELS_DIR": str(fresh.folder / "models")})
    started: list[BaseProcess] = []
    watcher = Watcher(place.database_url)
    try:
        tell("starting: the emulated devices warm up, which takes their time")
        awaited = [begin(place, name, serve) for name in _inference_names()]
        manner = Manner(threads=THREADS)
        awaited += [begin(place, pool.value, serve_pool, pool, manner, LeanIntake) for pool in (Pool.INTAKE, Pool.REPORTING)]
        awaited += [begin(place, name, main) for name, main in BESIDE.items()]
        started += [process for process, _ in awaited]
        for process, ready in awaited:
            await_ready(process, ready)
        yield Pipeline(place, watcher, tell)
    finally:
        for process in started:
            process.kill()
            process.join()
        watcher.close()
