"""A small model folder."""

from pathlib import Path

import pytest

from pipeline.inference.seeded import write_seeded_model
from schemas.model_card import ModelCard


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, ModelCard]:
    """A model folder of a few hundred weights that takes 32 x 32 pixels."""
    folder = tmp_path / "small"
    return folder, write_seeded_model(folder, seed=1, side_px=32, widths=(4, 4, 4, 4))
