"""Small model folders and a header that the shipped model covers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.seeded import write_seeded_model
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from tests.headers import breast_ultrasound

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
        return breast_ultrasound(**({"rows_px": 400, "columns_px": 320, "laterality": None} | different))

    return make
