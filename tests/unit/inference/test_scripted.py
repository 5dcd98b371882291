"""`.ts` folders: they answer as the network that they were made of; a pickle in the archive runs nothing, and its source no file."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_seeded_model
from pipeline.inference.weights import WeightsRefused
from tests.unit.inference.canary import Canary
from tests.unit.inference.whole_models import SIDE_PX, edited, network_of, scripted, write_whole_model

# Torch says so of every call; the format is read as long as bundles come in it.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

BATCH = np.random.default_rng(3).integers(0, 256, (3, 1, SIDE_PX, SIDE_PX), dtype=np.uint8)


class Writer(nn.Module):
    """Writes a file with each answer."""

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        torch.ops.aten.save(display, "written-by-a-model")
        return display, display.flatten(1)[:, :2]


class Waker(nn.Module):
    """Does something while it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.zeros(1)

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        return display + self.weight, display.flatten(1)[:, :2]

    @torch.jit.export
    def __getstate__(self) -> tuple[Tensor, bool]:
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]) -> None:
        self.weight, self.training = state[0] + 1, state[1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    write_seeded_model(folder, seed=1, side_px=SIDE_PX, widths=(4, 4, 4, 4))
    return folder


@pytest.fixture(scope="module")
def archive(plain: Path) -> bytes:
    return scripted(network_of(plain))


def load(folder: Path, content: bytes) -> ModelRunner:
    write_whole_model(folder, content, "weights.ts")
    return ModelRunner.load(folder, device="cpu", threads=1)


def saved(module: nn.Module) -> bytes:
    target = io.BytesIO()
    torch.jit.save(torch.jit.script(module), target)
    return target.getvalue()


def test_it_answers_as_the_network_that_it_was_made_of(plain: Path, archive: bytes, tmp_path: Path) -> None:
    ours = ModelRunner.load(plain, device="cpu", threads=1).run(BATCH)
    theirs = load(tmp_path, archive).run(BATCH)
    np.testing.assert_allclose(theirs.probability.astype(int), ours.probability.astype(int), rtol=0, atol=1)
    np.testing.assert_allclose(theirs.scores, ours.scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("record", ["data.pkl", "constants.pkl"])
def test_a_pickle_in_the_place_of_the_attributes_runs_nothing(archive: bytes, tmp_path: Path, record: str) -> None:
    sung = tmp_path / "sung"
    with pytest.raises(WeightsRefused, match="torch cannot read it"):
        load(tmp_path / "model", edited(archive, {record: lambda _: pickle.dumps(Canary(sung), protocol=2)}))
    assert not sung.exists()


def test_a_plain_pickle_is_refused(tmp_path: Path) -> None:
    sung = tmp_path / "sung"
    with pytest.raises(WeightsRefused, match="it is no archive"):
        load(tmp_path / "model", pickle.dumps(Canary(sung)))
    assert not sung.exists()


def test_a_pickled_network_is_refused(plain: Path, tmp_path: Path) -> None:
    target = io.BytesIO()
    torch.save(network_of(plain), target)
    with pytest.raises(WeightsRefused):
        load(tmp_path, target.getvalue())


@pytest.mark.parametrize(("module", "word"), [(Writer(), "save"), (Waker(), "__[gs]etstate__")])
def test_source_that_reaches_beyond_its_tensors_is_refused_before_it_is_compiled(module: nn.Module, word: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsRefused, match=f"its source uses '{word}'"):
        load(tmp_path, saved(module))


def test_operators_of_another_library_are_refused(archive: bytes, tmp_path: Path) -> None:
    def calls(source: bytes) -> bytes:
        return source + b"\ndef stranger(x: Tensor) -> Tensor:\n  return ops.other.write(x)\n"

    with pytest.raises(WeightsRefused, match="operators of another library"):
        load(tmp_path, edited(archive, {"lesion_unet.py": calls}))
