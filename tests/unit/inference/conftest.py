"""Small model folders and a header that the shipped model covers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.seeded import write_seeded_model
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard

Header = Callable[..., InstanceHeader]


@pytest.fixture
def shipped() -> Path:
    """The folder of the model that comes with the product."""
    return SHIPPED_MODELS / "breast-lesion-1"


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, ModelCard]:
    """A model folder of a few hundred weights that takes 32 x 32 pixels."""
    folder = tmp_path / "models" / "small"
    return folder, write_seeded_model(folder, seed=1, side_px=32, widths=(4, 4, 4, 4))


@pytest.fixture
def header() -> Header:
    """Make a header of a breast ultrasound image; name what is to differ."""

    def make(**different: Any) -> InstanceHeader:
        usual = InstanceHeader(
            sop_class_uid="1.2.840.10008.5.1.4.1.1.6.1",
            sop_instance_uid="1.2.3",
            study_instance_uid="1.2.4",
            series_instance_uid="1.2.5",
            transfer_syntax_uid="1.2.840.10008.1.2.1",
            modality="US",
            body_part="BREAST",
            rows_px=400,
            columns_px=320,
            frame_count=1,
            samples_per_pixel=1,
            photometric_interpretation="MONOCHROME2",
            bits_stored=8,
            is_signed=False,
        )
        return usual.model_copy(update=different)

    return make
