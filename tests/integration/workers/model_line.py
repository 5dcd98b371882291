"""Cases in a model's waiting line, and a model thread that works on them turn by turn."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np

from pipeline.persistence.ledger.claims import Rung
from pipeline.persistence.waiting_line import Waiting
from tests.integration.workers.prepared_cases import Image, PreparedCases
from tests.integration.workers.stub_cases import StubCases
from workers.doorbell import place_in_line
from workers.former import Former
from workers.stage_task import PoolRuntime

MOST_TURNS = 200


def as_prepared(place: Waiting) -> Waiting:
    """A place as intake gives it."""
    return place


def in_line(
    runtime: PoolRuntime,
    model: str,
    images: int | Sequence[Image],
    *,
    place: float = 1.0,
    change: Callable[[Waiting], Waiting] = as_prepared,
) -> list[UUID]:
    """Prepared cases that wait for the model, in the order in which they stand from a place on; so many black ones, or these."""
    services = runtime.services
    side_px = services.cards[model][0].input.side_px
    shown = [np.zeros((1, side_px, side_px), np.uint8)] * images if isinstance(images, int) else images
    rungs = PreparedCases(services.ledger, services.tensors, model).bring(shown)
    put_in_line(runtime, model, rungs, place=place, change=change)
    return [rung.case_id for rung in rungs]


def put_in_line(
    runtime: PoolRuntime, model: str, rungs: Sequence[Rung], *, place: float = 1.0, change: Callable[[Waiting], Waiting] = as_prepared
) -> None:
    """Let cases that wait for inference join the line, one after the other."""
    now = runtime.services.clock.now()
    places = [place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp()) for rung in rungs]
    runtime.services.line(model).join(change(replace(each, virtual_deadline=place + number)) for number, each in enumerate(places))


def states_after(former: Former, cases: StubCases, wanted: dict[UUID, str]) -> dict[UUID, str]:
    """Let the model thread turn until the cases stand where they should."""
    for _ in range(MOST_TURNS):
        former._turn()
        former.settle()
        if cases.states() == wanted:
            break
    return cases.states()
