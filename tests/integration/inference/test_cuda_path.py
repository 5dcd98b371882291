"""The device path on a CUDA device: left out, and said so, where there is none."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.failures import OutOfDeviceMemory
from pipeline.inference.graphs import Graphed
from pipeline.inference.runner import WARM_UP_SIZES, ModelRunner
from pipeline.inference.transfer import CudaTransfer
from schemas.model_card import ModelCard

pytestmark = pytest.mark.cuda

SHIPPED = SHIPPED_MODELS / "breast-lesion-1"
SPIN_CYCLES = 1_000_000_000
"""About half a second of a device that does nothing else."""

Images = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    """The shipped model, every size recorded."""
    runner = ModelRunner.load(SHIPPED, device="cuda:0", threads=1)
    runner.warm_up()
    return runner


@pytest.fixture(scope="module")
def images() -> Images:
    with np.load(SHIPPED / "golden.npz") as golden:
        eight: Images = golden["inputs"][:, np.newaxis]
    return np.concatenate([eight, eight[..., ::-1]])


@pytest.fixture
def transfer() -> CudaTransfer:
    return CudaTransfer(torch.device("cuda:0"), capacity_bytes=16 * 256 * 256)


def test_the_golden_answers_are_given_at_every_batch_size(runner: ModelRunner) -> None:
    runner.check_golden()


@pytest.mark.parametrize("size", [1, 3, 5, 9, 15, 16])
def test_a_padded_replay_gives_what_the_cpu_gives(runner: ModelRunner, images: Images, size: int) -> None:
    there, here = runner.run(images[:size]), ModelRunner.load(SHIPPED, device="cpu", threads=1).run(images[:size])
    np.testing.assert_allclose(there.probability.astype(int), here.probability.astype(int), rtol=0, atol=1)
    np.testing.assert_allclose(there.scores, here.scores, rtol=0, atol=1e-3)


def test_every_size_is_recorded(runner: ModelRunner) -> None:
    assert isinstance(runner._program, Graphed)
    assert sorted(runner._program._recorded) == list(WARM_UP_SIZES)


def host_to_device_bytes(trace: Path) -> int:
    """What a profiler's trace says was copied to the device."""
    events = json.loads(trace.read_text())["traceEvents"]
    return sum(int(event["args"]["bytes"]) for event in events if "Memcpy HtoD" in event.get("name", "") and "bytes" in event["args"])


def test_an_image_costs_its_narrow_bytes_on_the_way_to_the_device(runner: ModelRunner, images: Images, tmp_path: Path) -> None:
    runner.run(images)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        runner.run(images)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))

    assert host_to_device_bytes(tmp_path / "trace.json") == images.nbytes


def test_the_next_batch_arrives_while_the_device_computes(transfer: CudaTransfer) -> None:
    batch = np.random.default_rng(1).integers(0, 256, (16, 1, 256, 256), dtype=np.uint8)
    with transfer.computing():
        torch.cuda._sleep(SPIN_CYCLES)  # type: ignore[no-untyped-call]
    staged = transfer.stage([batch])
    assert isinstance(staged.arrived, torch.cuda.Event)
    staged.arrived.synchronize()

    assert not transfer.stream.query()
    np.testing.assert_array_equal(staged.shown.cpu().numpy(), batch)
    transfer.release(staged)


def test_a_slot_keeps_its_batch_until_the_work_on_it_is_done(transfer: CudaTransfer) -> None:
    """given more batches than slots, each read late on the device, then each is read as it was staged"""
    batches = [np.full((4, 1, 64, 64), number, np.uint8) for number in range(10)]
    sums: list[Tensor] = []
    for batch in batches:
        staged = transfer.stage([batch])
        with transfer.computing():
            shown = transfer.arrived(staged)
            torch.cuda._sleep(SPIN_CYCLES // 100)  # type: ignore[no-untyped-call]
            sums.append(shown.to(torch.int64).sum())
        transfer.release(staged)
    torch.cuda.synchronize()
    assert [int(each) for each in sums] == [int(batch.astype(np.int64).sum()) for batch in batches]


def test_memory_does_not_grow_over_many_mixed_batches(runner: ModelRunner, images: Images) -> None:
    chance = np.random.default_rng(48)
    reserved: list[tuple[int, int]] = []
    for number in range(5000):
        runner.run(images[: chance.integers(1, 17)])
        if number in (99, 4999):
            reserved.append((torch.cuda.memory_reserved(0), torch.cuda.host_memory_stats()["allocated_bytes.current"]))
    (before, host_before), (after, host_after) = reserved
    assert after <= 1.05 * before
    assert host_after <= 1.05 * host_before + 2**20


class Hungry(nn.Module):
    """Takes so many bytes an image."""

    def __init__(self, image_bytes: int) -> None:
        super().__init__()
        self._image_bytes = image_bytes

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        taken = torch.zeros(len(display) * self._image_bytes, dtype=torch.uint8, device=display.device)
        return torch.logit(display.clamp(0.01, 0.99)) + taken[0], torch.zeros(len(display), 2, device=display.device)


@pytest.fixture
def a_gibibyte() -> Iterator[int]:
    """What this process may have of the device for now."""
    total = torch.cuda.mem_get_info(0)[1]
    torch.cuda.empty_cache()
    room = 2**30 + torch.cuda.memory_reserved(0)
    torch.cuda.memory.set_per_process_memory_fraction(room / total, 0)
    yield 2**30
    torch.cuda.memory.set_per_process_memory_fraction(1.0, 0)


def test_a_batch_beyond_the_fraction_does_not_fit_and_the_next_one_runs(small: tuple[Path, ModelCard], a_gibibyte: int) -> None:
    folder, card = small
    runner = ModelRunner(card, Hungry(a_gibibyte // 9), folder=folder, device=torch.device("cuda:0"))
    batch = np.random.default_rng(2).integers(3, 252, (16, 1, 32, 32), dtype=np.uint8)
    with pytest.raises(OutOfDeviceMemory) as out:
        runner.run(batch)
    assert not out.value.is_guess
    assert len(runner.run(batch[:8]).scores) == 8
    assert list(runner.warm_up()) == [1, 2, 4, 8]
