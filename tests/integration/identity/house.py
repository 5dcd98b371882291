"""Cases at every door of the pools, brought there with the ledger's own statements, on real stores."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from celery import Celery
from prometheus_client import REGISTRY
from sqlalchemy import text
from uuid6 import uuid7

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool
from pipeline.imaging.letterbox import letterbox
from pipeline.persistence.ledger.admission import NewCase, accept_cases
from pipeline.persistence.ledger.claims import Claimed, HandOn, Rung, claim_cases, hand_on
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.uploads import received_key
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from schemas.tensor import TensorHandle
from schemas.work import CaseInput, InferredCase, Placement, PreparedCase, PreparedImage, PreparedInstance, ReceivedInstance
from workers.doorbell import place_in_line
from workers.flower_events import TaskEvents
from workers.group import Watch
from workers.leases import LeaseKeeper
from workers.stage_task import PoolRuntime
from workers.wiring import Services

TENANT = UUID(int=1)
SHAPE_PX = (40, 48)
LIFETIME = timedelta(minutes=10)
SCORES = (0.05, 0.999)
"""Malignancy low, presence certain."""

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Known:
    """One case, and what the test knows to be true of it."""

    case_id: UUID
    image: Bytes
    data: bytes
    """What was received."""
    framed: Bytes
    """What the model is to be shown."""
    placement: Placement
    prepared: PreparedCase | None = None
    inferred: InferredCase | None = None

    @property
    def received(self) -> ReceivedInstance:
        """The instance, as the gateway takes it in."""
        return ReceivedInstance(key=received_key(self.case_id, 0), digest=hashlib.sha256(self.data).hexdigest(), size_bytes=len(self.data))


Tamper = Callable[[Known], dict[str, Any]]
"""What a pool leaves in the row of a case: the `work` that is handed on."""


def identity_mismatches(hop: str) -> float:
    """The metric, as an operator reads it."""
    return REGISTRY.get_sample_value("secondread_identity_mismatch_total", {"hop": hop}) or 0.0


@dataclass(frozen=True, slots=True)
class House:
    """One ledger, one tensor store, one line, and the cases in them."""

    services: Services
    app: Celery
    header: InstanceHeader
    card: ModelCard
    leases: LeaseKeeper
    watch: Watch
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20))

    def runtime(self, pool: Pool) -> PoolRuntime:
        """What the tasks of a pool's process share."""
        return PoolRuntime(pool, self.app, self.services, self.leases, self.watch, TaskEvents())

    def new(self, count: int, encode: Callable[[Bytes, UUID], bytes] = lambda image, _: image.tobytes()) -> list[Known]:
        """Cases that nobody has brought yet, each with a noisy image of its own and something bright in it."""
        known = []
        for _ in range(count):
            image = self.chance.integers(0, 60, SHAPE_PX, dtype=np.uint8)
            top, left = self.chance.integers(2, 24, 2)
            image[top : top + 12, left : left + 16] += 180
            case_id = UUID(bytes=uuid7().bytes)
            framed, placement = letterbox(image, self.card.input.side_px)
            known.append(Known(case_id, image, encode(image, case_id), framed, placement))
        return known

    def accept(self, known: Sequence[Known], received: Callable[[Known], ReceivedInstance] = lambda each: each.received) -> list[Rung]:
        """Commit cases; return what to ring for them."""
        now = utc_now()
        due_at = now + timedelta(seconds=300)
        new = [
            NewCase(
                each.case_id,
                TENANT,
                Lane.ROUTINE,
                CaseInput(instances=(received(each),)),
                now,
                due_at,
                each.case_id.hex,
                b"f" * 32,
            )
            for each in known
        ]
        accepted = accept_cases(self.services.ledger, new)
        return [Rung(each.case_id, each.publish_no, 0, Lane.ROUTINE, due_at) for each in accepted]  # type: ignore[union-attr]

    def prepare(self, known: Sequence[Known], tamper: Tamper | None = None) -> list[Rung]:
        """Accepted cases become prepared ones; `tamper` says what stands in their rows instead of their own work."""
        claimed = self._claim(known, Pool.INTAKE)
        for each in known:
            case = claimed[each.case_id]
            model_input = self.put(each.framed[np.newaxis, np.newaxis], case)
            instance = PreparedInstance(
                digest=each.received.digest or "", header=self.header, stored=self.put(each.image[np.newaxis], case)
            )
            image = PreparedImage(instance=0, frame=1, outcome="ready", row=0, placement=each.placement)
            each.prepared = PreparedCase(
                model=self.card.reference, case_id=each.case_id, instances=(instance,), images=(image,), model_input=model_input
            )
        return self._hand_on(known, claimed, CaseState.AWAITING_INFERENCE, tamper or (lambda each: {"prepared": each.prepared}))

    def pass_by(self, known: Sequence[Known]) -> list[Rung]:
        """Accepted cases for which there is no model go to reporting at once: they have no tensor that could betray them."""
        claimed = self._claim(known, Pool.INTAKE)
        image = PreparedImage(instance=0, frame=1, outcome="not_applicable", reason="modality-not-covered")
        for each in known:
            instance = PreparedInstance(digest=each.received.digest or "", header=self.header)
            each.prepared = PreparedCase(model=self.card.reference, case_id=each.case_id, instances=(instance,), images=(image,))
        return self._hand_on(known, claimed, CaseState.AWAITING_REPORT, lambda each: {"prepared": each.prepared})

    def infer(self, known: Sequence[Known], tamper: Tamper | None = None) -> list[Rung]:
        """Prepared cases become read ones: the model outlined what is bright."""
        claimed = self._claim(known, Pool.INFERENCE)
        for each in known:
            assert each.prepared is not None
            assert each.prepared.model_input is not None
            each.inferred = InferredCase(
                model=self.card.reference,
                weights_digest=self.card.weights_sha256,
                probability=self.put(each.framed[np.newaxis], claimed[each.case_id]),
                scores=(SCORES,),
                model_input_digest=each.prepared.model_input.digest,
                batch_id="batch",
                batch_size=1,
                batch_position=0,
                fired_because="test",
                device="cpu",
                forward_s=0.01,
            )
        return self._hand_on(known, claimed, CaseState.AWAITING_REPORT, tamper or (lambda each: {"inferred": each.inferred}))

    def stand_in_line(self, rungs: Sequence[Rung]) -> None:
        """Put prepared cases into the model's line."""
        now = utc_now()
        places = [place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp()) for rung in rungs]
        self.services.line(self.card.reference).join(places)

    def put(self, values: Bytes, case: Claimed, *, generation: int | None = None) -> TensorHandle:
        """Park a tensor under a claim."""
        generation = case.attempt if generation is None else generation
        return self.services.tensors.put(values, case_id=case.case_id, generation=generation, expires_at=utc_now() + LIFETIME)

    def rows(self, known: Sequence[Known]) -> dict[UUID, Any]:
        """Where each case stands, with the number of its results and its way: the states that it entered."""
        found = run(
            self.services.ledger.relaxed,
            text("""
SELECT cases.*, (SELECT count(*) FROM results WHERE case_id = cases.id) AS results,
       (SELECT array_agg(entered_state ORDER BY id) FROM case_events WHERE case_id = cases.id) AS way
FROM cases WHERE id = ANY(:ids)"""),
            ids=[each.case_id for each in known],
        )
        return {row.id: row for row in found}

    def _claim(self, known: Sequence[Known], pool: Pool) -> dict[UUID, Claimed]:
        ids = [each.case_id for each in known]
        claimed = claim_cases(self.services.ledger, ids, pool=pool, worker="way", seen_no=0)
        return {case.case_id: case for case in claimed}

    def _hand_on(self, known: Sequence[Known], claimed: dict[UUID, Claimed], entered: CaseState, work: Tamper) -> list[Rung]:
        left = CaseState.FETCHING if claimed[known[0].case_id].attempt == 1 else CaseState.INFERRING
        done = [
            HandOn(
                each.case_id,
                claimed[each.case_id].attempt,
                {name: part.model_dump(mode="json") for name, part in work(each).items()},
                {},
            )
            for each in known
        ]
        return hand_on(self.services.ledger, done, left=left, entered=entered, worker="way")
