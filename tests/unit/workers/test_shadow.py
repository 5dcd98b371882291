"""A version on trial reads only while there is nothing else to do, and what it cannot take is skipped."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from prometheus_client import REGISTRY

from pipeline.deadline import utc_now
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.seeded import write_seeded_model
from pipeline.persistence.ledger.claims import Claimed
from pipeline.tensors.memory import MemoryStore
from schemas.work import CaseWork, InferredCase, PreparedCase
from tests.acceptance.running import eventually
from tests.unit.workers.claims import claimed
from workers.shadow import MOST_WAITING, Shadow

SIDE_PX = 32
OLD, NEW = f"seeded-unet:1.{SIDE_PX}", f"seeded-unet:2.{SIDE_PX}"
LIMIT_S = 60.0

Answered = Callable[[int], tuple[Claimed, InferredCase]]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    folder = tmp_path_factory.mktemp("models")
    for seed in (1, 2):
        write_seeded_model(folder / f"version-{seed}", seed=seed, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    registry = ModelRegistry(folder)
    registry.load()
    return registry


@pytest.fixture
def tensors() -> MemoryStore:
    return MemoryStore(capacity_bytes=1 << 24)


@pytest.fixture
def answered(registry: ModelRegistry, tensors: MemoryStore) -> Answered:
    """A case that the old version has answered, as the model thread has it."""

    def make(number: int) -> tuple[Claimed, InferredCase]:
        case, expires_at = claimed(number), utc_now() + timedelta(minutes=1)
        values = np.full((1, 1, SIDE_PX, SIDE_PX), 40 + number, np.uint8)
        output = registry.runner(OLD).run(values)
        handles = [tensors.put(each, case_id=case.case_id, generation=1, expires_at=expires_at) for each in (values, output.probability)]
        work = CaseWork(prepared=PreparedCase(model=OLD, instances=(), images=(), model_input=handles[0]))
        inferred = InferredCase(
            model=OLD,
            weights_digest="0" * 64,
            probability=handles[1],
            scores=tuple(tuple(map(float, row)) for row in output.scores),
            batch_id="b",
            batch_size=1,
            batch_position=0,
            fired_because="full",
            device="cpu",
            forward_s=0.1,
        )
        return replace(case, work=work), inferred

    return make


@pytest.fixture
def shadow(registry: ModelRegistry, tensors: MemoryStore) -> Iterator[Shadow]:
    shadow = Shadow(registry, tensors)
    shadow.follow({OLD: NEW})
    shadow.start()
    yield shadow
    shadow.close()


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def compared(model: str = NEW) -> float:
    return sum(count("secondread_shadow_compared_total", model=model, agreement=each) for each in ("alike", "differs", "failed"))


def offer(shadow: Shadow, *answers: tuple[Claimed, InferredCase]) -> None:
    shadow.offer([case for case, _ in answers], {case.case_id: inferred for case, inferred in answers})


def test_nothing_is_read_beside_until_the_model_thread_rests(shadow: Shadow, answered: Answered) -> None:
    before = compared()
    shadow.rest(False)
    offer(shadow, answered(1), answered(2))
    assert not eventually(lambda: compared() > before, within_s=0.3)
    shadow.rest(True)
    assert eventually(lambda: compared() == before + 2, within_s=LIMIT_S)
    assert count("secondread_shadow_dice_count", model=NEW) >= 2


def test_whom_there_is_no_room_for_is_skipped_and_counted(shadow: Shadow, answered: Answered) -> None:
    before = count("secondread_shadow_skipped_total", model=NEW)
    shadow.rest(False)
    offer(shadow, *(answered(number) for number in range(MOST_WAITING + 3)))
    assert count("secondread_shadow_skipped_total", model=NEW) == before + 3


def test_a_case_whose_input_is_freed_already_is_skipped(shadow: Shadow, answered: Answered, tensors: MemoryStore) -> None:
    before = count("secondread_shadow_skipped_total", model=NEW)
    case, inferred = answered(5)
    assert case.work.prepared is not None
    assert case.work.prepared.model_input is not None
    tensors.free(case.work.prepared.model_input)
    offer(shadow, (case, inferred))
    assert count("secondread_shadow_skipped_total", model=NEW) == before + 1


def test_a_version_that_is_not_loaded_fails_by_itself(shadow: Shadow, answered: Answered) -> None:
    absent = "seeded-unet:9"
    shadow.follow({OLD: absent})
    offer(shadow, answered(6))
    shadow.rest(True)
    assert eventually(lambda: compared(absent) == 1, within_s=LIMIT_S)


def test_cases_of_a_version_that_nobody_shadows_are_left_alone(shadow: Shadow, answered: Answered) -> None:
    shadow.follow({})
    before = count("secondread_shadow_skipped_total", model=NEW)
    offer(shadow, answered(7))
    assert count("secondread_shadow_skipped_total", model=NEW) == before
