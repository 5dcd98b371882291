"""Parts of a case: the shipped model's card, a header and an empty tensor store."""

from uuid import UUID

import pytest

from pipeline.inference.card import SHIPPED_MODELS, load_card
from pipeline.tensors.memory import MemoryStore
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from tests.headers import breast_ultrasound


@pytest.fixture
def case_id() -> UUID:
    return UUID("01970000-0000-7000-8000-000000000001")


@pytest.fixture(scope="session")
def lesion_card() -> ModelCard:
    """Presence at 0.984, malignancy at 0.081, mask at 0.5, 30 pixels."""
    return load_card(SHIPPED_MODELS / "breast-lesion-1")


@pytest.fixture
def us_header() -> InstanceHeader:
    """A left breast in ultrasound: one frame, 48 rows by 64 columns of 8-bit grey, without spacing."""
    return breast_ultrasound()


@pytest.fixture
def tensors() -> MemoryStore:
    return MemoryStore(capacity_bytes=16 * 1024 * 1024)
