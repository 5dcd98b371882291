"""A batch that outlasts leases and visibilities, with a second device idle beside it; and a case whose time was over before it fired."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from uuid import UUID

import numpy as np
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from pipeline.flow import Pool
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.runner import ModelOutput
from pipeline.inference.seal import seals_of
from pipeline.persistence.ledger.claims import LEASE_S
from pipeline.persistence.ledger.engine import run
from tests.acceptance.running import eventually
from tests.faults.servers import Place
from tests.integration.workers.prepared_cases import PreparedCases
from tests.integration.workers.stub_cases import StubCases
from workers.app import make_app, unacked_hash
from workers.doorbell import place_in_line
from workers.flower_events import TaskEvents
from workers.former import Former
from workers.group import Watch
from workers.guard import Guard
from workers.leases import LeaseKeeper
from workers.settings import Settings
from workers.stage_task import PoolRuntime
from workers.sweeper import ROUND_S, Sweeper
from workers.wiring import Services, open_services

pytestmark = pytest.mark.services

BATCH_S = 2.5 * LEASE_S
ENDS_WITHIN_S = 30.0
OVERDUE, IN_TIME = 7, 9
"""What the pixels of a case are."""
FORGET_DEADLINE = text("UPDATE cases SET deadline_at = clock_timestamp() WHERE id = :id")
LAPSED = text("SELECT count(*) AS n FROM case_events WHERE code = 'lease-expired'")


class SlowModel:
    """Stands for registry and runner: a model that takes its time and remembers what it saw."""

    def __init__(self, services: Services, *, takes_s: float) -> None:
        self._takes_s = takes_s
        (self.reference,) = self.served = tuple(services.cards)
        self.card, _ = services.cards[self.reference]
        self.stages_ahead = False
        self.began = threading.Event()
        self.seen: list[list[int]] = []

    def durations_s(self, _reference: str) -> Mapping[int, float]:
        return {1: self._takes_s}

    def runner(self, _reference: str) -> "SlowModel":
        return self

    def run_parts(self, parts: Any) -> ModelOutput:
        batch = np.concatenate(parts)
        self.seen.append([int(image[0, 0, 0]) for image in batch])
        self.began.set()
        threading.Event().wait(self._takes_s)
        probability, scores = (
            np.zeros((len(batch), *batch.shape[2:]), np.uint8),
            np.zeros((len(batch), len(self.card.scores)), np.float32),
        )
        return ModelOutput(probability, scores, seals_of(batch, probability, scores))


@pytest.fixture
def settings(place: Place) -> Settings:
    return Settings(
        database_url=SecretStr(place.database_url),
        redis_url=SecretStr(place.redis_url),
        state_dir=place.folder,
        tensor_dir=place.folder / "tensors",
        # One case is a whole batch.
        batch_images=1,
    )


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    with open_services(settings, role="test") as services:
        yield services


@contextmanager
def device(settings: Settings, name: str, model: SlowModel) -> Iterator[Former]:
    """The model thread of an inference process."""
    with open_services(settings, role=name) as services, ExitStack() as stack:
        leases, watch = LeaseKeeper(services.ledger), Watch()
        stack.callback(leases.close)
        stack.callback(watch.close)
        runtime = PoolRuntime(Pool.INFERENCE, make_app(settings, Pool.INFERENCE), services, leases, watch, TaskEvents())
        former = Former(runtime, cast(ModelRegistry, model), on_death=lambda: None)
        former.start()
        yield former
        former.drain()
        former.join(BATCH_S + ENDS_WITHIN_S)


def in_line(services: Services, pixel: int) -> UUID:
    """A prepared case whose image is all of one value, in its model's line."""
    ((reference, (card, _)),) = services.cards.items()
    image = np.full((card.input.channels, card.input.side_px, card.input.side_px), pixel, np.uint8)
    (rung,) = PreparedCases(services.ledger, services.tensors, reference).bring([image])
    now = services.clock.now()
    services.line(reference).join([place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp())])
    return rung.case_id


def test_a_batch_of_two_and_a_half_leases_runs_once_although_a_second_device_and_the_sweeper_wait_for_it(
    settings: Settings, services: Services, cases: StubCases
) -> None:
    model = SlowModel(services, takes_s=BATCH_S)
    case_id = in_line(services, IN_TIME)
    sweeper = Sweeper(services, make_app(settings))

    with device(settings, "inference-1", model), device(settings, "inference-2", model):
        assert model.began.wait(ENDS_WITHIN_S)

        def is_over() -> bool:
            sweeper.round()
            threading.Event().wait(ROUND_S)
            return cases.states()[case_id] != "inferring"

        assert eventually(is_over, within_s=BATCH_S + ENDS_WITHIN_S)

    assert model.seen == [[IN_TIME]]
    row = cases.rows()[case_id]
    # One claim on its way here, one for the batch.
    assert (row.state, row.attempt) == ("awaiting_report", 2)
    assert run(services.ledger.relaxed, LAPSED)[0].n == 0
    # No message was held meanwhile, so no visibility could be too short.
    assert services.redis.hlen(unacked_hash(Pool.INFERENCE)) == 0


def test_a_case_whose_time_is_over_never_reaches_the_model(settings: Settings, services: Services, cases: StubCases) -> None:
    model = SlowModel(services, takes_s=0.1)
    overdue, in_time = in_line(services, OVERDUE), in_line(services, IN_TIME)
    run(services.ledger.relaxed, FORGET_DEADLINE, id=overdue)
    Guard(services, make_app(settings)).round()
    assert services.line(model.reference).length() == 2

    with device(settings, "inference-1", model):
        assert eventually(lambda: services.line(model.reference).length() == 0, within_s=ENDS_WITHIN_S)

    assert model.seen == [[IN_TIME]]
    assert cases.states()[in_time] == "awaiting_report"
    assert cases.rows()[overdue].is_preliminary
