"""Parts of a case: the shipped model's card, a header and an empty tensor store."""

from uuid import UUID

import pytest

from pipeline.inference.card import SHIPPED_MODELS, load_card
from pipeline.tensors.memory import MemoryStore
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard


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
    return InstanceHeader(
        sop_class_uid="1.2.840.10008.5.1.4.1.1.6.1",
        sop_instance_uid="1.2.3.4",
        study_instance_uid="1.2.3",
        series_instance_uid="1.2.3.1",
        transfer_syntax_uid="1.2.840.10008.1.2.1",
        modality="US",
        body_part="BREAST",
        laterality="L",
        rows_px=48,
        columns_px=64,
        frame_count=1,
        samples_per_pixel=1,
        photometric_interpretation="MONOCHROME2",
        bits_stored=8,
        is_signed=False,
    )


@pytest.fixture
def tensors() -> MemoryStore:
    return MemoryStore(capacity_bytes=16 * 1024 * 1024)
